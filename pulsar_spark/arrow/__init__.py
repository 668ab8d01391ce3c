"""Arrow arrays and bytes, whatever they hold: what the wire protocol and the formats of values both need."""

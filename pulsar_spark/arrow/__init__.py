"""Arrow arrays and bytes of any content, for the wire protocol and the formats of values."""

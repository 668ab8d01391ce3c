"""Whether a restarted query reads the cluster that its checkpoint is of."""

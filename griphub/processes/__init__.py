"""Child processes of the hub: the writer and the readers of the store."""

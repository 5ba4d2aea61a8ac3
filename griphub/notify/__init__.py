"""The way to the handler: items of the hub, and the channels that clients hold."""

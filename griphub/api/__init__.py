"""HTTP API of the hub: server, requests, answers."""

"""The I/O shell: client and backend connections, timers."""

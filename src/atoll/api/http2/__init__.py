"""HTTP/2 to callers, where TLS is on: the head of a request, one exchange, and the connection that carries many."""

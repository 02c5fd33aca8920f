"""Ingress: requests for a port of a sandbox, told apart from those for the API and passed on."""

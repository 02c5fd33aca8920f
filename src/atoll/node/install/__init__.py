"""Set-up of a host: what is built once per machine, where it lies, and the steps that make it so."""

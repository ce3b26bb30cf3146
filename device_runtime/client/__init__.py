"""A phone's side of the server's HTTP API: uploads and downloads that resume."""

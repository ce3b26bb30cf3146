"""The client of the server's HTTP API, with resumable uploads and downloads."""

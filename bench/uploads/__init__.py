"""Uploads for `bench ingest`: request bodies, the sockets that send them, and the processes that receive them."""

"""Uploads for `bench ingest`: what is sent, the sockets that send it, and the processes that receive it."""

"""The OpenAPI document, made from the routes and types it describes."""

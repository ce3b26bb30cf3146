"""The dashboard: pages rendered on the server for whoever watches a federation learn."""

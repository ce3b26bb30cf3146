"""The dashboard: server-rendered pages about rounds, models and costs."""

"""The HTTP surface: routes, uploads in, models out, errors as problem documents."""

"""How Alembic runs the migrations of a ledger: on a connection, within the caller's transaction."""

from alembic import context

if __name__ == "env_py":  # the name that Alembic loads it under
    options = context.config.attributes
    context.configure(connection=options["connection"], version_table=options["version_table"])
    context.run_migrations()

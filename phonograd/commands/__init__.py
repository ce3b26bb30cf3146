"""One module per family of subcommands: options in, a library call, a table or JSON out."""

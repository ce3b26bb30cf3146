"""From a user's messages to minibatches of tokens; evaluating a model on a text."""

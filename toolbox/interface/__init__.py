"""What a toolbox command looks like from outside: where it is found, its parameters, its help."""

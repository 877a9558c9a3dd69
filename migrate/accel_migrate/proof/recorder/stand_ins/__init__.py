"""What a script would have had: made-up data, random weights, packages that do nothing. Each is told, once, as it is used."""

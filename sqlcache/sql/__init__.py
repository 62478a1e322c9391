"""What a statement means, told from its text and from the server's catalog, without any I/O but the
`catalog_loader`'s.
"""

"""A `Graph` goes in, an AOTInductor package comes out; the package goes in, a session comes out."""

"""C++ programs that run parts of the native step under the compiler's sanitizers."""

"""Where pages are kept below the device: host memory, disk, Redis. Bytes under identities."""

"""What every room stands on: data, this machine, extension points, signatures, and the code that is sent to targets."""

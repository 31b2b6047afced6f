"""The messages of the gRPC service `fmaas.GenerationService`, in the generated module `generation_pb2`."""

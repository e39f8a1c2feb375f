"""gRPC: sends back the bytes that it gets, without a schema."""

import sys
from concurrent import futures

import grpc


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
server = grpc.server(futures.ThreadPoolExecutor(2), options=options)
server.add_generic_rpc_handlers((Echo(),))
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
server.wait_for_termination()

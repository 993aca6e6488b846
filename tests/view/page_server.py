"""Serves a page of `weir view` to a browser from memory, in place of the program."""

import http.server
import threading


class PageServer:
    """PageServer answers each request by answer(NAME) -> (content type, bytes), on a thread of its own until close().

    NAME is the path of the request without its slashes.
    """

    def __init__(self, answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                kind, body = answer(self.path.strip("/"))
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

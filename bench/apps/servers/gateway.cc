// A gateway as people write one: each message is received into a string made for it, gets an envelope in a second string, is
// unwrapped into a third one by what stands for the other side, and is sent back. A thread for each connection.
//
//   gateway PORT         a client says once how long messages are (8 bytes, little endian)
#include <arpa/inet.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

static bool receive(int fd, char *at, size_t n) {
    while (n > 0) {
        ssize_t got = recv(fd, at, n, 0);
        if (got <= 0)
            return false;
        at += got, n -= got;
    }
    return true;
}

static bool sends(int fd, const char *at, size_t n) {
    while (n > 0) {
        ssize_t gone = send(fd, at, n, MSG_NOSIGNAL);
        if (gone <= 0)
            return false;
        at += gone, n -= gone;
    }
    return true;
}

static std::string wrap(const std::string &body) {
    std::string envelope = "length=" + std::to_string(body.size()) + "\n";
    envelope.reserve(envelope.size() + body.size());
    envelope += body;
    return envelope;
}

static std::string unwrap(const std::string &envelope) {
    return envelope.substr(envelope.find('\n') + 1);
}

static void serve(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    uint64_t length;
    if (receive(fd, reinterpret_cast<char *>(&length), sizeof length) && length < (1u << 30)) {
        for (;;) {
            std::string in(length, '\0');
            if (!receive(fd, in.data(), length))
                break;
            std::string out = unwrap(wrap(in));
            if (!sends(fd, out.data(), out.size()))
                break;
        }
    }
    close(fd);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(atoi(argv[1])));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) || listen(listener, 128))
        return 1;
    for (;;) {
        int fd = accept(listener, nullptr, nullptr);
        if (fd >= 0)
            std::thread(serve, fd).detach();
    }
}

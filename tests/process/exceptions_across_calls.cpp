// C++ exceptions around interposed calls: thrown with payloads that are views, through frames with views in destructors, and (with
// -fnon-call-exceptions) by a SIGSEGV handler out of a copy.
#include "process.h"
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

struct Message {
    std::vector<char> bytes;
    explicit Message(unsigned number) : bytes(SIZE) { receive(bytes.data(), SIZE, number); }
};

struct Checks {
    const char *bytes;
    unsigned number;
    ~Checks() { EXPECT_INPUT(bytes, SIZE, number); }
};

static void throws(const char *v, unsigned number, int depth) {
    Checks here{v, number};
    if (depth == 0) {
        Message m(number + 1);
        throw m; // copies a vector: memmove of input
    }
    throws(v, number, depth - 1);
}

static void thrower(int signal) {
    (void)signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    throw std::runtime_error("segmentation fault");
}

__attribute__((noinline)) static bool copy_throws(void *to, const void *from, size_t n) {
    try {
        void *(*volatile copy)(void *, const void *, size_t) = memcpy;
        copy(to, from, n);
        return false;
    } catch (const std::runtime_error &e) {
        say("caught: %s", e.what());
        return true;
    }
}

int main() {
    for (unsigned i = 0; i < 4; i++) {
        char *v = VIEW(10 * i);
        try {
            throws(v, 10 * i, 3);
        } catch (Message &m) {
            EXPECT_INPUT(m.bytes.data(), SIZE, 10 * i + 1);
            std::vector<char> copy(m.bytes), grown(copy);
            grown.insert(grown.begin(), copy.begin(), copy.end()); // memmove and reallocation
            EXPECT_INPUT(grown.data(), SIZE, 10 * i + 1);
            EXPECT_INPUT(grown.data() + SIZE, SIZE, 10 * i + 1);
            std::string s(m.bytes.begin(), m.bytes.end());
            std::ostringstream stream;
            stream << s << s;
            s = stream.str();
            EXPECT_INPUT(s.data() + SIZE, SIZE, 10 * i + 1);
        }
        try {
            std::vector<char>().reserve(~size_t(0) >> 1);
            say("reserved");
        } catch (const std::length_error &) {
            say("length error");
        } catch (const std::bad_alloc &) {
            say("bad alloc");
        }
    }
    // A handler that throws out of a copy which faults. The address is the program's own mistake.
    signal(SIGSEGV, thrower);
    char *v = VIEW(1), *guarded = fresh(SIZE);
    MUST(mprotect(guarded, SIZE, PROT_NONE) == 0);
    say("copy of nothing throws: %d", copy_throws(guarded, guarded, 64));
    char *w = VIEW(2);
    say("large copy throws: %d", copy_throws(guarded, w, SIZE));
    EXPECT_INPUT(v, SIZE, 1);
    signal(SIGSEGV, SIG_DFL);
    return finish();
}

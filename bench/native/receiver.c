/* receiver: callbacks of subscriptions, on one port or several. Confirms each challenge, acknowledges each event with 204. One thread.
 *
 *   receiver PORT …            of 127.0.0.1
 *
 * Each command on stdin is answered by one JSON line:
 *
 *   zero                       forget all events so far
 *   wait COUNT MS              when so many events were acknowledged since, or after so many milliseconds
 *
 * Times are those from the mark in an event, if it has one, to its arrival.
 */
#include "clock.h"

#define MOST (1 << 21) /* of a request; more is refused by closing */
#define FIRST 8192

struct connection {
    int fd;
    size_t length, space;
    char *text;
};

/* As in crowd.c: times in ns, in 64 steps from each power of two to the next. */
#define STEPS 64
static uint64_t histogram[64 * STEPS], events, challenges, first, last, wanted, deadline;

static unsigned bucket(uint64_t v) {
    if (v < STEPS) return (unsigned)v;
    unsigned power = 63 - (unsigned)__builtin_clzll(v);
    return (power - 5) * STEPS + (unsigned)(v >> (power - 6)) % STEPS;
}

static void reply(struct connection *c, const char *text, size_t n) {
    if (send(c->fd, text, n, MSG_NOSIGNAL) != (ssize_t)n) shutdown(c->fd, SHUT_RDWR);
}

/* Answer the first request in the text if it is whole. Returns its bytes, 0 if it is not. */
static size_t serve(struct connection *c) {
    static const char done[] = "HTTP/1.1 204 No Content\r\n\r\n", name[] = "\"challenge\": \"";
    char *end = memmem(c->text, c->length, "\r\n\r\n", 4), *field, *at;
    if (!end) return 0;
    *end = 0;
    field = strcasestr(c->text, "\r\ncontent-length:");
    size_t head = (size_t)(end - c->text) + 4, length = field ? strtoul(field + 17, 0, 10) : 0;
    *end = '\r';
    if (head + length > c->length) return 0;
    char *body = c->text + head;
    if ((at = memmem(body, length < 400 ? length : 400, name, sizeof name - 1))) {
        char answer[300];
        at += sizeof name - 1;
        size_t n = strcspn(at, "\"");
        int k = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%.*s", n, (int)n, at);
        reply(c, answer, (size_t)k);
        challenges++;
        return head + length;
    }
    reply(c, done, sizeof done - 1);
    last = now();
    if (!events++) first = last;
    for (at = body; (at = memchr(at, '@', (size_t)(body + length - at))); at++) {
        if (at + MARK_LENGTH > body + length) break;
        uint64_t sent = read_mark(at);
        if (sent && sent <= last) {
            histogram[bucket(last - sent)]++;
            break;
        }
    }
    return head + length;
}

static void tell(void) {
    const char *comma = "";
    printf("{\"events\":%llu,\"challenges\":%llu,\"first\":%llu,\"last\":%llu,\"histogram\":[", (unsigned long long)events,
           (unsigned long long)challenges, (unsigned long long)first, (unsigned long long)last);
    for (unsigned i = 0; i < 64 * STEPS; i++)
        if (histogram[i]) printf("%s[%u,%llu]", comma, i, (unsigned long long)histogram[i]), comma = ",";
    printf("]}\n");
    fflush(stdout);
}

static void command(const char *line) {
    unsigned long long count, ms;
    if (!strcmp(line, "zero")) {
        memset(histogram, 0, sizeof histogram);
        events = first = last = 0;
        tell();
    } else if (sscanf(line, "wait %llu %llu", &count, &ms) == 2) {
        wanted = count;
        deadline = now() + ms * 1000000u;
    } else exit(2);
}

static void feed(struct connection *c) {
    if (c->length == c->space) {
        c->space = c->space ? c->space * 2 : FIRST;
        if (!(c->text = realloc(c->text, c->space + 1))) die("realloc");
    }
    ssize_t got = recv(c->fd, c->text + c->length, c->space - c->length, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    size_t used = 0, all = 0;
    if (got > 0) {
        c->length += (size_t)got;
        c->text[c->length] = 0;
        char *begin = c->text;
        while (c->length && (used = serve(c))) c->text += used, c->length -= used, all += used;
        c->text = begin;
        if (all) memmove(c->text, c->text + all, c->length + 1);
    }
    if (got <= 0 || c->length >= MOST) {
        close(c->fd);
        free(c->text);
        free(c);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    raise_limit();
    int ep = epoll_create1(EPOLL_CLOEXEC);
    /* Listeners and stdin have odd numbers, connections their address. */
    for (int i = 1; i < argc; i++) {
        int fd = listen_at(atoi(argv[i]), 0);
        watch(ep, fd, EPOLLIN, (uint64_t)fd << 1 | 1);
    }
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    watch(ep, 0, EPOLLIN, 1);
    struct epoll_event found[256];
    char line[128];
    for (;;) {
        int n = epoll_wait(ep, found, 256, deadline ? 20 : -1);
        for (int i = 0; i < n; i++) {
            uint64_t data = found[i].data.u64;
            if (data == 1) {
                int more;
                while ((more = next_line(line, sizeof line)) > 0) command(line);
                if (more < 0) return 0;
            } else if (data & 1) {
                int fd;
                while ((fd = accept4((int)(data >> 1), 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    struct connection *c = calloc(1, sizeof *c);
                    if (!c) die("calloc");
                    no_delay(fd);
                    c->fd = fd;
                    watch(ep, fd, EPOLLIN, (uint64_t)(uintptr_t)c);
                }
            } else feed((struct connection *)(uintptr_t)data);
        }
        if (deadline && (events >= wanted || now() >= deadline)) deadline = 0, tell();
    }
}

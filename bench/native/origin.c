/* origin: a backend that is never the bottleneck. One thread.
 *
 *   origin PORT
 *
 *   GET /stream?c=NAME          held as a stream on the channel; with &k=SECONDS it has keep-alives
 *   GET /poll?c=NAME            held as a long-poll
 *   POST /ws?c=NAME             WebSocket over HTTP: subscribes the new one, sends everything else back
 *   GET /count                  how many other requests were answered
 *   anything else               hello
 */
#include "clock.h"

#define MOST 65536 /* of a request; more is refused by closing */

struct connection {
    int fd;
    size_t length;
    char *text;
};

static unsigned long answers;

static void answer(struct connection *c, const char *type, const char *head, const char *body, size_t n) {
    static char out[MOST + 1024];
    int k = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%sContent-Length: %zu\r\n\r\n", type, head, n);
    memcpy(out + k, body, n);
    if (send(c->fd, out, (size_t)k + n, MSG_NOSIGNAL) != (ssize_t)((size_t)k + n)) shutdown(c->fd, SHUT_RDWR);
}

/* Make the chunks of a body, at most `n` bytes, one piece in `into`. Returns the bytes of the chunks, 0 if some are missing. */
static size_t unchunk(const char *body, size_t n, char *into, size_t *length) {
    const char *at = body, *end = body + n, *line;
    *length = 0;
    while ((line = memmem(at, (size_t)(end - at), "\r\n", 2))) {
        size_t size = strtoul(at, 0, 16);
        if (size > MOST || (size_t)(end - line) < size + 4) return 0;
        memcpy(into + *length, line + 2, size);
        *length += size;
        at = line + size + 4;
        if (!size) return (size_t)(at - body);
    }
    return 0;
}

/* Answer the first request in the text if it is whole. Returns its bytes, 0 if it is not. */
static size_t serve(struct connection *c) {
    static char pieces[MOST + 64], events[MOST + 512];
    char head[300], name[64], *end = memmem(c->text, c->length, "\r\n\r\n", 4), *field;
    if (!end) return 0;
    *end = 0;
    char *body = end + 4, *path = strchr(c->text, ' ');
    size_t length = 0, used = (size_t)(body - c->text);
    if ((field = strcasestr(c->text, "\r\ncontent-length:"))) {
        length = strtoul(field + 17, 0, 10);
        if (used + length > c->length) return *end = '\r', 0;
        used += length;
    } else if (strcasestr(c->text, "\r\ntransfer-encoding: chunked")) {
        size_t raw = unchunk(body, c->length - used, pieces, &length);
        if (!raw) return *end = '\r', 0;
        used += raw;
        body = pieces;
    }
    if (!path) return *end = '\r', used;
    path++;
    char *query = strstr(path, "?c="), *stop = path + strcspn(path, " \r");
    snprintf(name, sizeof name, "%.*s", query && query < stop ? (int)strcspn(query + 3, " &") : 0, query ? query + 3 : "");
    if (!strncmp(path, "/count", 6)) {
        int n = snprintf(head, sizeof head, "%lu\n", answers);
        answer(c, "text/plain", "", head, (size_t)n);
        return used;
    }
    answers++;
    if (!strncmp(path, "/stream", 7)) {
        char *keep = strstr(path, "&k=");
        int n = snprintf(head, sizeof head, "Grip-Hold: stream\r\nGrip-Channel: %s\r\n", name);
        if (keep && keep < stop) snprintf(head + n, sizeof head - (size_t)n, "Grip-Keep-Alive: +; timeout=%d\r\n", atoi(keep + 3));
        answer(c, "text/plain", head, "welcome\n", 8);
    } else if (!strncmp(path, "/poll", 5)) {
        snprintf(head, sizeof head, "Grip-Hold: response\r\nGrip-Channel: %s\r\nGrip-Timeout: 600\r\n", name);
        answer(c, "text/plain", head, "timeout\n", 8);
    } else if (!strncmp(path, "/ws", 3)) {
        size_t n = 0;
        if (length >= 6 && !memcmp(body, "OPEN\r\n", 6)) {
            char order[128];
            int k = snprintf(order, sizeof order, "c:{\"type\":\"subscribe\",\"channel\":\"%s\"}", name);
            n = (size_t)snprintf(events, sizeof events, "OPEN\r\nTEXT %x\r\n%s\r\n", (unsigned)k, order);
            body += 6, length -= 6;
        }
        memcpy(events + n, body, length);
        /* Without a prefix Pushpin would drop what is sent back. */
        answer(c, "application/websocket-events", "Sec-WebSocket-Extensions: grip; message-prefix=\"\"\r\n", events, n + length);
    } else answer(c, "text/plain", "", "hello\n", 6);
    return used;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    raise_limit();
    int listener = listen_at(atoi(argv[1]), 0), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[256];
    watch(epoll, listener, EPOLLIN, 0);
    for (;;) {
        int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                int fd;
                while ((fd = accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    no_delay(fd);
                    if (!(c = calloc(1, sizeof *c)) || !(c->text = malloc(MOST + 1))) die("malloc");
                    c->fd = fd;
                    watch(epoll, fd, EPOLLIN, (uint64_t)(uintptr_t)c);
                }
                continue;
            }
            ssize_t got = recv(c->fd, c->text + c->length, MOST - c->length, 0);
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            size_t used = 0;
            if (got > 0) {
                c->length += (size_t)got;
                c->text[c->length] = 0;
                while ((used = serve(c))) memmove(c->text, c->text + used, (c->length -= used) + 1);
            }
            if (got <= 0 || c->length == MOST) {
                close(c->fd);
                free(c->text);
                free(c);
            }
        }
    }
}

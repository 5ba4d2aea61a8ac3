/* publisher: sends items from a template, as fast as they are taken or at a rate.
 *
 *   publisher PORT zmq|http|line CONNECTIONS CHANNELS TEMPLATE BUFFER
 *
 * TEMPLATE is a file with the bytes of one message, whatever the protocol. Each of these in it is replaced, by something as long:
 *
 *   @0000000000000000;   the time at which it is sent
 *   c#####               the channel: c00000, c00001, … and again from the beginning
 *   i###############     an id that was never sent before
 *   p###############     the id of the message before it on its channel
 *
 * zmq is a PUSH socket (ZMTP 3.0). http: one request at a time on each connection, which is opened again when the server has closed it.
 * Each command on stdin is answered by one JSON line when it is done:
 *
 *   send COUNT RATE MS   RATE a second (0: no limit), for at most MS milliseconds
 *
 * What the server does not read waits here, unsent: `sent` counts what the kernel has taken. BUFFER is how many bytes of
 * a connection that may keep on this side, 0 for as many as it likes.
 */
#include "clock.h"
#include <poll.h>

#define PLACES 4
#define BATCH 65536

enum way { ZMQ, HTTP, LINE };
struct places { size_t at[PLACES]; int many; };
struct connection { int fd, busy; size_t length; char answer[4096]; };

static enum way way;
static int port, channels, buffer;
static char *template;
static size_t length;
static struct places marks, names, ids, previous;
static uint64_t *last_id, next_id, item;

static void find(struct places *found, const char *what) {
    size_t n = strlen(what);
    for (char *at = template; (at = memmem(at, length - (size_t)(at - template), what, n)); at += n) {
        if (found->many == PLACES) exit(2);
        found->at[found->many++] = (size_t)(at - template);
    }
}

static void digits(char *at, uint64_t value, int n) {
    for (at += n; n--; value /= 10) *--at = (char)('0' + value % 10);
}

/* One more message at `out`. */
static void make(char *out) {
    int channel = (int)(item++ % (uint64_t)channels);
    memcpy(out, template, length);
    for (int i = 0; i < marks.many; i++) write_mark(out + marks.at[i], now());
    for (int i = 0; i < names.many; i++) digits(out + names.at[i] + 1, (uint64_t)channel, 5);
    if (!ids.many) return;
    for (int i = 0; i < ids.many; i++) digits(out + ids.at[i] + 1, next_id, 15);
    for (int i = 0; i < previous.many; i++) {
        digits(out + previous.at[i] + 1, last_id[channel], 15);
        out[previous.at[i]] = 'i';
    }
    last_id[channel] = next_id++;
}

static int dial(void) {
    struct sockaddr_in a = loopback(port);
    struct linger hard = {1, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    no_delay(fd);
    if (buffer) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    if (way == HTTP) setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); /* each one leaves no TIME_WAIT */
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) die("publisher: connect");
    return fd;
}

static void read_all(int fd, char *into, size_t n) {
    while (n) {
        ssize_t got = recv(fd, into, n, 0);
        if (got <= 0) die("publisher: handshake");
        into += got, n -= (size_t)got;
    }
}

static void shake_hands(int fd) {
    static const char ready[] = "\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH";
    char greeting[64] = {(char)0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'}, theirs[256];
    send(fd, greeting, sizeof greeting, MSG_NOSIGNAL);
    read_all(fd, theirs, 64);
    send(fd, ready, sizeof ready - 1, MSG_NOSIGNAL);
    read_all(fd, theirs, 2);
    if (theirs[0] != 4 || (unsigned char)theirs[1] > 200) exit(1);
    read_all(fd, theirs, (unsigned char)theirs[1]);
}

static void report(uint64_t sent, uint64_t taken, uint64_t refused, uint64_t start, uint64_t end) {
    printf("{\"sent\":%llu,\"taken\":%llu,\"refused\":%llu,\"start\":%llu,\"end\":%llu}\n", (unsigned long long)sent,
           (unsigned long long)taken, (unsigned long long)refused, (unsigned long long)start, (unsigned long long)end);
    fflush(stdout);
}

static void nap(uint64_t until) {
    struct timespec t = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
}

/* Into one connection, without answers. */
static void pour(int fd, uint64_t wanted, double rate, uint64_t most) {
    static char batch[BATCH];
    uint64_t start = now(), until = start + most, sent = 0, t;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (sent < wanted && (t = now()) < until) {
        uint64_t due = rate > 0 ? (uint64_t)((double)(t - start) / 1e9 * rate) + 1 : wanted;
        if (due > wanted) due = wanted;
        if (sent >= due) {
            nap(start + (uint64_t)((double)sent / rate * 1e9));
            continue;
        }
        size_t n = 0, done = 0, made = 0;
        while (sent + made < due && n + length <= sizeof batch) make(batch + n), n += length, made++;
        while (done < n) {
            ssize_t k = send(fd, batch + done, n - done, MSG_NOSIGNAL);
            if (k > 0) done += (size_t)k;
            else if (errno == EAGAIN) {
                struct pollfd p = {.fd = fd, .events = POLLOUT};
                /* What is half sent must be finished, or the stream is broken: a server that reads nothing for a minute
                 * is given up. */
                if (poll(&p, 1, 60000) <= 0) die("publisher: the server reads nothing");
            } else die("publisher: send");
        }
        sent += made;
    }
    report(sent, sent, 0, start, now());
}

/* What came of an answer: 0 not all of it, 1 all, 2 all and the server closes. */
static int whole(struct connection *c) {
    char *end = strstr(c->answer, "\r\n\r\n"), *field;
    if (!end) return 0;
    size_t body = (size_t)(c->answer + c->length - end) - 4;
    int closes = (field = strcasestr(c->answer, "\r\nconnection: close")) && field < end;
    if ((field = strcasestr(c->answer, "\r\ncontent-length:")) && field < end) {
        if (body < strtoul(field + 17, 0, 10)) return 0;
    } else if ((field = strcasestr(c->answer, "\r\ntransfer-encoding: chunked")) && field < end && !strstr(end, "0\r\n\r\n")) return 0;
    return closes ? 2 : 1;
}

static void post(struct connection *c) {
    static char request[BATCH];
    make(request);
    c->length = 0;
    c->busy = 1;
    if (send(c->fd, request, length, MSG_NOSIGNAL) != (ssize_t)length) die("publisher: send");
}

static void post_all(struct connection *cs, int many, uint64_t wanted, double rate, uint64_t most) {
    uint64_t start = now(), until = start + most, sent = 0, answered = 0, refused = 0, t;
    struct pollfd ps[64];
    while ((t = now()) < until + 10000000000u) {
        uint64_t due = rate > 0 ? (uint64_t)((double)(t - start) / 1e9 * rate) + 1 : wanted;
        if (due > wanted) due = wanted;
        if (t >= until) due = sent;
        for (int i = 0; i < many && sent < due; i++)
            if (!cs[i].busy) post(&cs[i]), sent++;
        if (answered == sent && (sent == wanted || t >= until)) break;
        if (answered == sent) {
            nap(start + (uint64_t)((double)sent / rate * 1e9));
            continue;
        }
        for (int i = 0; i < many; i++) ps[i] = (struct pollfd){.fd = cs[i].busy ? cs[i].fd : -1, .events = POLLIN};
        if (poll(ps, (nfds_t)many, rate > 0 ? 1 : 1000) <= 0) continue;
        for (int i = 0; i < many; i++) {
            struct connection *c = &cs[i];
            if (!ps[i].revents) continue;
            ssize_t n = recv(c->fd, c->answer + c->length, sizeof c->answer - 1 - c->length, 0);
            if (n > 0) c->length += (size_t)n;
            c->answer[c->length] = 0;
            int done = n > 0 ? whole(c) : 2;
            if (!done) continue;
            answered++;
            if (c->length < 12 || c->answer[9] != '2') refused++;
            c->busy = 0;
            if (done == 2) close(c->fd), c->fd = dial();
        }
    }
    report(sent, answered - refused, refused, start, now());
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    raise_limit();
    port = atoi(argv[1]);
    way = !strcmp(argv[2], "zmq") ? ZMQ : !strcmp(argv[2], "http") ? HTTP : LINE;
    int many = atoi(argv[3]);
    channels = atoi(argv[4]);
    buffer = atoi(argv[6]);
    if (many < 1 || many > 64 || channels < 1 || channels > 100000) return 2;
    FILE *file = fopen(argv[5], "rb");
    template = malloc(BATCH);
    last_id = calloc((size_t)channels, sizeof *last_id);
    if (!file || !template || !last_id) die(argv[5]);
    length = fread(template, 1, BATCH, file);
    if (!length || length == BATCH) return 2;
    find(&marks, "@0000000000000000;");
    find(&names, "c#####");
    find(&ids, "i###############");
    find(&previous, "p###############");
    next_id = now() / 1000 % 100000000000000u; /* the server remembers ids of earlier runs */
    struct connection *cs = calloc((size_t)many, sizeof *cs);
    if (!cs) die("calloc");
    for (int i = 0; i < many; i++) {
        cs[i].fd = dial();
        if (way == ZMQ) shake_hands(cs[i].fd);
    }
    char line[256];
    int found;
    while ((found = next_line(line, sizeof line)) >= 0) {
        unsigned long long count, rate, most;
        if (!found) continue;
        if (sscanf(line, "send %llu %llu %llu", &count, &rate, &most) != 3) return 2;
        if (way == HTTP) post_all(cs, many, count, (double)rate, most * 1000000u);
        else pour(cs[0].fd, count, (double)rate, most * 1000000u);
    }
}

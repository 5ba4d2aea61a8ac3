/* crowd: many clients in one thread. They are held and count the messages they get, or ask again and again.
 *
 *   crowd -p PORT -k stream|poll|ws|plain|once -u PATH [-s 127.x.y.z] [-H HEADERS] [-b BUFFER] [-w WIDTH] [-d BODY] [-t TEXT]
 *
 * "#####" in PATH becomes the client's number, and where it is again, that number plus WIDTH. HEADERS are whole lines with
 * CR LF. BUFFER is how many bytes the kernel may keep of what a client has not read. With BODY the request is a POST. TEXT is
 * a message of a stream in place of a mark, and its time that since the client was opened; the first character of TEXT
 * is in it only once. A client of the kind once asks when it is connected, and closes when it has the whole answer. Without TEXT
 * it is refused, and asks again on a new connection, after its Retry-After or a second. Each command on stdin is answered by one JSON line when it is done:
 *
 *   open N WINDOW RATE   N more clients, at most WINDOW being opened at a time, RATE a second (0: no limit). One counts
 *                        as held when its response's head has come; for poll, when the request is sent; for plain and
 *                        once, when it is connected.
 *   again WINDOW         those that are closed are opened once more, at most WINDOW at a time
 *   zero                 the figures so far; count anew
 *   wait COUNT MS QUIET  until COUNT messages have come; or for MS milliseconds; or until none came for QUIET
 *   talk MS SIZE         every client sends (ws: SIZE bytes; plain: the request) as soon as its last answer has come
 *   look                 the figures at once
 *
 * The end of stdin ends it, and resets all connections.
 */
#include "clock.h"

enum kind { STREAM, POLL, WS, PLAIN, ONCE };
enum state { CONNECTING, WAITING, HELD, CLOSED };

struct client {
    int fd;
    uint8_t state, part_length;
    uint8_t matched;              /* how much of CR LF CR LF has been seen, and then of the text */
    uint8_t head_length;          /* of the status line */
    char part[MARK_LENGTH];       /* the beginning of a mark that was split */
    char head[12];
    uint8_t coding;               /* how much of "chunked" has been seen in the head */
    uint8_t sized;                /* in the line of a chunk's size: 1, digits have come; 2, something behind them */
    uint32_t size, left;          /* of a chunk: its size so far, and how much of its content is missing */
    uint16_t answer_length;
    char *answer;                 /* of plain clients: what has come of it */
    uint64_t asked, retry;        /* retry: when a closed one is opened again; 0: never */
};
#define ANSWER_MOST 2048

static struct client *clients;
static int opened, wanted, capacity, window = 50, epoll, port, buffer, again = -1;
static int held, closed, refused;
static double rate;
static uint64_t opening_since;
static enum kind kind = STREAM;
static const char *path = "/", *source, *headers = "", *body, *text;
static int width;

static uint64_t count, reads, bytes, first, last, strange;
static int talking;
static uint64_t next_retry = UINT64_MAX;
static char frame[4096];
static size_t frame_length;
static char input[1 << 16];

/* Latencies in ns, in 64 steps from each power of two to the next: exact to one per cent. */
#define STEPS 64
static uint64_t histogram[64 * STEPS];

static unsigned bucket(uint64_t v) {
    if (v < STEPS) return (unsigned)v;
    unsigned power = 63 - (unsigned)__builtin_clzll(v);
    return (power - 5) * STEPS + (unsigned)(v >> (power - 6)) % STEPS;
}

static void zero(void) {
    count = reads = bytes = first = last = strange = 0;
    memset(histogram, 0, sizeof histogram);
}

static void tell(double seconds) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"held\":%d,\"closed\":%d,\"refused\":%d,\"seconds\":%.6f,\"count\":%llu,\"reads\":%llu,\"bytes\":%llu,"
           "\"first\":%llu,\"last\":%llu,\"strange\":%llu,\"cpu\":%.3f,\"histogram\":[",
           held, closed, refused, seconds, (unsigned long long)count, (unsigned long long)reads, (unsigned long long)bytes,
           (unsigned long long)first, (unsigned long long)last, (unsigned long long)strange,
           (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    const char *comma = "";
    for (unsigned i = 0; i < 64 * STEPS; i++)
        if (histogram[i]) printf("%s[%u,%llu]", comma, i, (unsigned long long)histogram[i]), comma = ",";
    printf("]}\n");
    fflush(stdout);
}

static void drop(struct client *c) {
    if (c->state == CLOSED) return;
    if (c->state == HELD) held--;
    c->state = CLOSED;
    closed++;
    close(c->fd);
}

static size_t request(const struct client *c, char *out, size_t size) {
    char digits[8], *at = out;
    int number = (int)(c - clients);
    int n = snprintf(out, size, "%s %s HTTP/1.1\r\nHost: bench.example\r\n%s%s", body ? "POST" : "GET", path,
                     kind == WS ? "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" : "", headers);
    if ((size_t)n >= size) exit(2);
    n += body ? snprintf(out + n, size - (size_t)n, "Content-Length: %zu\r\n\r\n%s", strlen(body), body)
              : snprintf(out + n, size - (size_t)n, "\r\n");
    if ((size_t)n >= size) exit(2);
    for (; (at = memmem(at, (size_t)(out + n - at), "#####", 5)); at += 5, number += width) {
        snprintf(digits, sizeof digits, "%05d", number % 100000);
        memcpy(at, digits, 5);
    }
    return (size_t)n;
}

static void put(struct client *c, const char *data, size_t n) {
    if (send(c->fd, data, n, MSG_NOSIGNAL) != (ssize_t)n) drop(c); /* small enough to fit always */
}

static void ask(struct client *c) {
    char out[4096];
    c->matched = c->head_length = c->coding = c->sized = 0;
    c->size = c->left = 0;
    if (kind == PLAIN) c->asked = now();
    put(c, out, request(c, out, sizeof out));
}

static void say(struct client *c) {
    write_mark(frame + frame_length - MARK_LENGTH, now());
    put(c, frame, frame_length);
}

static void begin(struct client *c) {
    struct sockaddr_in to = loopback(port), from = {.sin_family = AF_INET};
    struct linger hard = {1, 0};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket");
    no_delay(c->fd);
    if (buffer) setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); /* thousands in TIME_WAIT would be in the way */
    if (source) {
        inet_pton(AF_INET, source, &from.sin_addr);
        setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(c->fd, (struct sockaddr *)&from, sizeof from)) die("bind");
    }
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) die("connect");
    c->state = CONNECTING;
    if (kind != ONCE || !c->asked) c->asked = now();
    c->part_length = 0;
    c->answer_length = 0;
    watch(epoll, c->fd, EPOLLIN | EPOLLOUT, (uint64_t)(c - clients));
}

/* Those that were refused are told when to come back, as any client is. */
static void drop_until(struct client *c, uint64_t t) {
    if (c->state == CLOSED) return;
    drop(c);
    c->retry = t;
    if (t < next_retry) next_retry = t;
}

static void retry(uint64_t t) {
    next_retry = UINT64_MAX;
    for (struct client *c = clients; c < clients + opened; c++) {
        if (c->state != CLOSED || !c->retry) continue;
        if (c->retry <= t) c->retry = 0, closed--, begin(c);
        else if (c->retry < next_retry) next_retry = c->retry;
    }
}

static void hold(struct client *c) {
    c->state = HELD;
    held++;
}

static void record(uint64_t since, uint64_t t) {
    if (since > t) strange++;
    else histogram[bucket(t - since)]++;
    if (!count++) first = t;
    last = t;
}

static void marked(struct client *c, uint64_t mark, uint64_t t) {
    record(mark, t);
    if (talking) say(c);
}

/* Find the text in what a held client got, also where it is split. */
static void search(struct client *c, const char *data, size_t n, uint64_t t) {
    for (const char *end = data + n; data < end; data++) {
        if (!c->matched && !(data = memchr(data, text[0], (size_t)(end - data)))) return;
        c->matched = *data == text[c->matched] ? c->matched + 1 : *data == text[0];
        if (text[c->matched]) continue;
        c->matched = 0;
        record(c->asked, t);
    }
}

/* Find the marks in what a held client got, also those that are split. */
static void scan(struct client *c, const char *data, size_t n, uint64_t t) {
    const char *end = data + n;
    uint64_t mark;
    if (c->part_length) {
        char whole[2 * MARK_LENGTH];
        size_t had = c->part_length, more = n < MARK_LENGTH ? n : MARK_LENGTH;
        memcpy(whole, c->part, had);
        memcpy(whole + had, data, more);
        c->part_length = 0;
        size_t i = 0;
        for (; i < had; i++) {
            if (whole[i] != '@') continue;
            if (i + MARK_LENGTH > had + more) { /* still not whole: all of `data` is in it */
                c->part_length = (uint8_t)(had + more - i);
                memcpy(c->part, whole + i, c->part_length);
                return;
            }
            if ((mark = read_mark(whole + i))) {
                marked(c, mark, t);
                data += i + MARK_LENGTH - had;
                break;
            }
        }
    }
    while (c->state == HELD && data < end && (data = memchr(data, '@', (size_t)(end - data)))) {
        if (end - data < MARK_LENGTH) {
            c->part_length = (uint8_t)(end - data);
            memcpy(c->part, data, c->part_length);
            return;
        }
        if ((mark = read_mark(data))) {
            marked(c, mark, t);
            data += MARK_LENGTH;
        } else data++;
    }
}

/* Look at the content of chunks: a large message may be in several, cut anywhere. */
static void look(struct client *c, const char *data, size_t n, uint64_t t) {
    while (n && c->state == HELD) {
        if (c->coding < 7 || c->left) {
            size_t k = c->coding == 7 && c->left < n ? c->left : n;
            text ? search(c, data, k, t) : scan(c, data, k, t);
            if (c->left) c->left -= (uint32_t)k;
            data += k, n -= k;
            continue;
        }
        int d = *data++, digit = d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : -1;
        n--;
        if (d == '\n') c->left = c->sized ? c->size : 0, c->size = c->sized = 0;
        else if (digit >= 0 && c->sized < 2) c->size = c->size << 4 | (uint32_t)digit, c->sized = 1;
        else if (d != '\r' && c->sized) c->sized = 2;
    }
}

/* Feed the end of a response's head; returns how much of `data` belongs to it, and sets *whole when it ended. */
static size_t head(struct client *c, const char *data, size_t n, int *whole) {
    static const char ending[] = "\r\n\r\n", coding[] = "chunked";
    for (size_t i = 0; i < n; i++) {
        if (coding[c->coding]) c->coding = (data[i] | 32) == coding[c->coding] ? c->coding + 1 : (data[i] | 32) == coding[0];
        if (c->head_length < sizeof c->head) c->head[c->head_length++] = data[i];
        c->matched = data[i] == ending[c->matched] ? c->matched + 1 : data[i] == '\r';
        if (c->matched == 4) {
            c->matched = 0;
            *whole = 1;
            return i + 1;
        }
    }
    return n;
}

/* Whether the answer in `text` is whole: as long as its length says, or up to its last chunk. */
static int complete(const char *text, size_t n) {
    const char *end = memmem(text, n, "\r\n\r\n", 4), *length = strcasestr(text, "\r\ncontent-length:");
    if (!end) return 0;
    end += 4;
    if (length && length < end) return (size_t)(text + n - end) >= strtoul(length + 17, 0, 10);
    return n >= 5 && !memcmp(text + n - 5, "0\r\n\r\n", 5);
}

static void answered(struct client *c, const char *data, size_t n, uint64_t t) {
    if (!c->answer && !(c->answer = malloc(ANSWER_MOST + 1))) die("malloc");
    if (c->answer_length + n > ANSWER_MOST) {
        fprintf(stderr, "crowd: an answer of more than %d bytes\n", ANSWER_MOST);
        exit(1);
    }
    memcpy(c->answer + c->answer_length, data, n);
    c->answer_length = (uint16_t)(c->answer_length + n);
    c->answer[c->answer_length] = 0;
    if (!complete(c->answer, c->answer_length)) return;
    int told = !memcmp(c->answer + 9, "200", 3) && (!text || strstr(c->answer, text));
    if (!told && !refused++) fprintf(stderr, "the first refused: %.300s\n", c->answer);
    c->answer_length = 0;
    if (told || kind == PLAIN) record(c->asked, t);
    if (kind == ONCE && told) drop(c);
    else if (kind == ONCE) {
        const char *after = strcasestr(c->answer, "\r\nretry-after:");
        drop_until(c, t + (after ? strtoul(after + 14, 0, 10) : 1) * 1000000000u);
    } else if (talking) ask(c);
}

static void got(struct client *c, const char *data, size_t n, uint64_t t) {
    reads++;
    bytes += n;
    if (kind >= PLAIN) {
        answered(c, data, n, t);
        return;
    }
    if (c->state == WAITING) {
        int whole = 0;
        size_t used = head(c, data, n, &whole);
        if (!whole) return;
        if (memcmp(c->head + 9, kind == WS ? "101" : "200", 3)) {
            if (!refused++) fprintf(stderr, "the first refused: %.*s\n", (int)(n > 300 ? 300 : n), data);
            drop(c);
            return;
        }
        hold(c);
        data += used;
        n -= used;
    }
    if (n) look(c, data, n, t);
}

static void event(struct client *c, uint32_t events) {
    if (c->state == CONNECTING) {
        if (events & (EPOLLERR | EPOLLHUP)) {
            if (kind == ONCE) refused++, drop_until(c, now() + 1000000000u);
            else drop(c);
            return;
        }
        if (!(events & EPOLLOUT)) return;
        struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)(c - clients)};
        epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
        c->state = WAITING;
        if (kind != PLAIN) ask(c);
        if (kind == PLAIN || ((kind == POLL || kind == ONCE) && c->state == WAITING)) hold(c);
        return;
    }
    /* Once only: a client that gets and gets must not keep us from the others, or from a command. */
    ssize_t n = recv(c->fd, input, sizeof input, 0);
    if (n > 0) got(c, input, (size_t)n, now());
    else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (kind == ONCE) refused++, drop_until(c, now() + 1000000000u);
        else drop(c);
    }
}

static void prepare_frame(size_t size) {
    if (size < MARK_LENGTH) size = MARK_LENGTH;
    if (size > sizeof frame - 8) size = sizeof frame - 8;
    size_t start = 0;
    frame[start++] = (char)0x81;
    if (size < 126) frame[start++] = (char)(0x80 | size);
    else {
        frame[start++] = (char)(0x80 | 126);
        frame[start++] = (char)(size >> 8);
        frame[start++] = (char)size;
    }
    memset(frame + start, 0, 4); /* the mask: zeros change nothing */
    memset(frame + start + 4, 'x', size);
    frame_length = start + 4 + size;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"stream", "poll", "ws", "plain", "once"};
    enum { NOTHING, OPENING, AWAITING, TALKING } doing = NOTHING;
    uint64_t until = 0, goal = 0, quiet = 0, seen = 0, seen_at = 0, since = 0;
    char line[256];
    int o;
    while ((o = getopt(argc, argv, "p:k:u:s:H:b:w:d:t:")) != -1) switch (o) {
        case 'p': port = atoi(optarg); break;
        case 'k': for (int i = 0; i < 5; i++) if (!strcmp(names[i], optarg)) kind = (enum kind)i; break;
        case 'u': path = optarg; break;
        case 's': source = optarg; break;
        case 'H': headers = optarg; break;
        case 'b': buffer = atoi(optarg); break;
        case 'w': width = atoi(optarg); break;
        case 'd': body = optarg; break;
        case 't': text = optarg; break;
        default: return 2;
    }
    raise_limit();
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    capacity = r.rlim_cur > 200000 ? 200000 : (int)r.rlim_cur;
    clients = calloc((size_t)capacity, sizeof *clients);
    if (!clients) die("calloc");
    epoll = epoll_create1(EPOLL_CLOEXEC);
    fcntl(0, F_SETFL, O_NONBLOCK);
    watch(epoll, 0, EPOLLIN, UINT64_MAX);
    for (;;) {
        uint64_t t = now();
        if (t >= next_retry) retry(t);
        if (doing == OPENING) {
            int due = rate > 0 ? (int)((double)(t - opening_since) / 1e9 * rate) + 1 : wanted;
            int begun = opened - (wanted - (int)goal);
            while (opened < wanted && begun < due && opened - held - closed < window) begin(&clients[opened++]), begun++;
        }
        for (; doing == OPENING && again >= 0 && opened - held - closed < window; again++) {
            while (again < opened && clients[again].state != CLOSED) again++;
            if (again >= opened) {
                again = -1;
                break;
            }
            closed--;
            begin(&clients[again]);
        }
        if ((doing == OPENING && again < 0 && held + closed >= wanted) ||
            (doing == AWAITING && (count >= goal || t >= until || t - seen_at >= quiet)) || (doing == TALKING && t >= until)) {
            doing = NOTHING;
            talking = 0;
            tell((double)(t - since) / 1e9);
        }
        struct epoll_event events[1024];
        int n = epoll_wait(epoll, events, 1024, doing == OPENING ? (rate > 0 ? 1 : 100) : doing ? 2 : 1000);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 != UINT64_MAX) {
                event(&clients[events[i].data.u64], events[i].events);
                continue;
            }
            int found;
            while ((found = next_line(line, sizeof line)) == 1) {
                unsigned long long a = 0, b = 0, c = 0;
                since = now();
                if (sscanf(line, "open %llu %llu %llu", &a, &b, &c) == 3) {
                    if (wanted + (int)a > capacity - 32) {
                        fprintf(stderr, "crowd: only %d descriptors\n", capacity);
                        return 1;
                    }
                    doing = OPENING, wanted += (int)a, goal = a, window = (int)b, rate = (double)c, opening_since = since;
                } else if (sscanf(line, "again %llu", &a) == 1) {
                    doing = OPENING, goal = 0, window = (int)a, rate = 0, again = 0;
                } else if (sscanf(line, "wait %llu %llu %llu", &a, &b, &c) == 3) {
                    doing = AWAITING, goal = a, until = since + b * 1000000u, quiet = c * 1000000u;
                    seen = count, seen_at = since;
                } else if (sscanf(line, "talk %llu %llu", &a, &b) == 2) {
                    doing = TALKING, until = since + a * 1000000u;
                    prepare_frame(b);
                    zero();
                    talking = 1;
                    for (int k = 0; k < opened; k++)
                        if (clients[k].state == HELD) kind == PLAIN ? ask(&clients[k]) : say(&clients[k]);
                } else if (!strcmp(line, "zero")) {
                    tell(0);
                    zero();
                } else if (!strcmp(line, "look")) tell(0);
                else return 2;
            }
            if (found < 0) return 0;
        }
        if (doing == AWAITING && count != seen) seen = count, seen_at = now();
    }
}

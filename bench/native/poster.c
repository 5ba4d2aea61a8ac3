/* poster: sends one HTTP request again and again, over connections that stay open, and measures the time to each answer.
 *
 *   poster ADDRESS CONNECTIONS KEYS REQUEST
 *
 * ADDRESS is a port of 127.0.0.1, or the path of a Unix socket. REQUEST is a file with the bytes of a whole request. Each of these in it
 * is replaced, by something as long:
 *
 *   @0000000000000000;   the time at which it is sent
 *   k#######             a key: k0000000, k0000001, … k(KEYS - 1), and again from the beginning; each place has the next one
 *   v###############     a version: a decimal of 16 digits; each place has the next one, and a poster begins above earlier ones
 *   w###############     the newest version of the request
 *
 * One request at a time is under way on each connection. Each command on stdin is answered by one JSON line when it is done:
 *
 *   post COUNT RATE MS   RATE a second (0: as soon as the last one is answered), for at most MS milliseconds
 *
 * With a rate the time to an answer begins when the request was due, not when a connection was free for it.
 */
#include "clock.h"
#include <sys/un.h>

#define REQUEST_MOST (1 << 21)
#define ANSWER_MOST (1 << 18)
#define PLACES 8192
#define CONNECTIONS 1024
#define PATIENCE 10000000000u /* for the answers that are missing at the end */
#define KEY_LENGTH 8
#define VERSION_LENGTH 16

enum kind { TIME, KEY, VERSION, NEWEST };
struct place { size_t at; enum kind kind; };
struct connection { int fd, busy; uint64_t due; size_t length; char *answer; };

static struct connection connections[CONNECTIONS];
static struct place places[PLACES];
static int many, place_count, idle[CONNECTIONS], idle_count, queue;
static const char *address;
static char request[REQUEST_MOST];
static size_t length;
static uint64_t keys, next_key, version, answered, refused;

/* As in crowd.c: times in ns, in 64 steps from each power of two to the next. */
#define STEPS 64
static uint64_t histogram[64 * STEPS];

static unsigned bucket(uint64_t v) {
    if (v < STEPS) return (unsigned)v;
    unsigned power = 63 - (unsigned)__builtin_clzll(v);
    return (power - 5) * STEPS + (unsigned)(v >> (power - 6)) % STEPS;
}

static void find(const char *what, enum kind kind) {
    size_t n = strlen(what);
    for (char *at = request; (at = memmem(at, length - (size_t)(at - request), what, n)); at += n) {
        if (place_count == PLACES) exit(2);
        places[place_count++] = (struct place){(size_t)(at - request), kind};
    }
}

static void digits(char *at, int count, uint64_t value) {
    while (count--) at[count] = (char)('0' + value % 10), value /= 10;
}

/* The newest versions come last among the places: then all others of the request are given. */
static void fill(void) {
    for (int i = 0; i < place_count; i++) {
        char *at = request + places[i].at;
        switch (places[i].kind) {
        case TIME: write_mark(at, now()); break;
        case KEY: digits(at + 1, KEY_LENGTH - 1, next_key++ % keys); break;
        case VERSION: digits(at, VERSION_LENGTH, ++version); break;
        case NEWEST: digits(at, VERSION_LENGTH, version); break;
        }
    }
}

static int dial(void) {
    struct linger hard = {1, 0};
    int fd;
    if (strchr(address, '/')) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        if (strlen(address) >= sizeof a.sun_path) exit(2);
        memcpy(a.sun_path, address, strlen(address) + 1);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a)) die("poster: connect");
        return fd;
    }
    struct sockaddr_in a = loopback(atoi(address));
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    no_delay(fd);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); /* each one leaves no TIME_WAIT */
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) die("poster: connect");
    return fd;
}

static void open_one(int i) {
    connections[i].fd = dial();
    watch(queue, connections[i].fd, EPOLLIN, (uint64_t)i);
}

static void post(int i, uint64_t due) {
    struct connection *c = &connections[i];
    fill();
    c->busy = 1;
    c->length = 0;
    c->due = due;
    for (size_t done = 0; done < length;) {
        ssize_t n = send(c->fd, request + done, length - done, MSG_NOSIGNAL);
        if (n <= 0) break; /* closed: seen when the answer is read */
        done += (size_t)n;
    }
}

/* What has come of an answer: 0 not all of it, 1 all, 2 all and the server closes. */
static int whole(struct connection *c) {
    char *text = c->answer, *end = memmem(text, c->length, "\r\n\r\n", 4), *field;
    if (!end) return 0;
    size_t body = (size_t)(text + c->length - end) - 4;
    *end = 0; /* strcasestr looks at the head only */
    int closes = strcasestr(text, "\r\nconnection: close") != 0, done = 1;
    if ((field = strcasestr(text, "\r\ncontent-length:"))) done = body >= strtoul(field + 17, 0, 10);
    else if (strcasestr(text, "\r\ntransfer-encoding: chunked")) done = body >= 5 && !memcmp(text + c->length - 5, "0\r\n\r\n", 5);
    *end = '\r';
    return done ? 1 + closes : 0;
}

static void event(int i) {
    struct connection *c = &connections[i];
    ssize_t n = recv(c->fd, c->answer + c->length, ANSWER_MOST - 1 - c->length, 0);
    if (n > 0) c->length += (size_t)n;
    if (c->length == ANSWER_MOST - 1) {
        fprintf(stderr, "poster: an answer of more than %d bytes\n", ANSWER_MOST - 2);
        exit(1);
    }
    c->answer[c->length] = 0;
    int done = n > 0 ? whole(c) : 2;
    if (!done) return;
    if (c->busy) {
        answered++;
        if (c->length < 12 || c->answer[9] != '2') {
            if (!refused++) fprintf(stderr, "the first refused: %.400s\n", c->length ? c->answer : "closed without an answer");
        } else histogram[bucket(now() - c->due)]++;
        c->busy = 0;
        idle[idle_count++] = i;
    }
    c->length = 0;
    if (done == 2) close(c->fd), open_one(i);
}

static void report(uint64_t sent, uint64_t start, uint64_t end) {
    printf("{\"sent\":%llu,\"taken\":%llu,\"refused\":%llu,\"start\":%llu,\"end\":%llu,\"histogram\":[", (unsigned long long)sent,
           (unsigned long long)(answered - refused), (unsigned long long)refused, (unsigned long long)start, (unsigned long long)end);
    const char *comma = "";
    for (unsigned i = 0; i < 64 * STEPS; i++)
        if (histogram[i]) printf("%s[%u,%llu]", comma, i, (unsigned long long)histogram[i]), comma = ",";
    printf("]}\n");
    fflush(stdout);
}

static void run(uint64_t wanted, double rate, uint64_t most) {
    struct epoll_event events[CONNECTIONS];
    int n;
    /* A server closes a connection that was idle for long: it is opened again before it is used. */
    while ((n = epoll_wait(queue, events, CONNECTIONS, 0)) > 0)
        for (int i = 0; i < n; i++) event((int)events[i].data.u64);
    uint64_t start = now(), until = start + most, sent = 0, t;
    answered = refused = 0;
    memset(histogram, 0, sizeof histogram);
    while ((t = now()) < until + PATIENCE) {
        uint64_t due = rate > 0 ? (uint64_t)((double)(t - start) / 1e9 * rate) + 1 : wanted;
        if (due > wanted) due = wanted;
        if (t >= until) due = sent;
        while (idle_count && sent < due) {
            post(idle[--idle_count], rate > 0 ? start + (uint64_t)((double)sent / rate * 1e9) : now());
            sent++;
        }
        if (answered == sent && (sent == wanted || t >= until)) break;
        struct timespec pause = {.tv_sec = 1};
        if (rate > 0 && idle_count && sent < wanted && t < until) {
            uint64_t next = start + (uint64_t)((double)sent / rate * 1e9);
            pause = next > t ? (struct timespec){.tv_sec = (time_t)((next - t) / 1000000000u), .tv_nsec = (long)((next - t) % 1000000000u)}
                             : (struct timespec){0};
        }
        n = epoll_pwait2(queue, events, CONNECTIONS, &pause, 0);
        for (int i = 0; i < n; i++) event((int)events[i].data.u64);
    }
    report(sent, start, now());
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    raise_limit();
    address = argv[1];
    many = atoi(argv[2]);
    keys = strtoull(argv[3], 0, 10);
    if (many < 1 || many > CONNECTIONS || keys < 1 || keys > 10000000) return 2;
    FILE *file = fopen(argv[4], "rb");
    if (!file) die(argv[4]);
    length = fread(request, 1, sizeof request, file);
    fclose(file);
    if (!length || length == sizeof request) return 2;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    version = (uint64_t)wall.tv_sec * 1000000u + (uint64_t)wall.tv_nsec / 1000;
    find("@0000000000000000;", TIME);
    find("k#######", KEY);
    find("v###############", VERSION);
    find("w###############", NEWEST);
    queue = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < many; i++) {
        connections[i].answer = malloc(ANSWER_MOST);
        if (!connections[i].answer) die("malloc");
        open_one(i);
        idle[idle_count++] = many - 1 - i;
    }
    char line[256];
    int found;
    while ((found = next_line(line, sizeof line)) >= 0) {
        unsigned long long count, rate, most;
        if (!found) continue;
        if (sscanf(line, "post %llu %llu %llu", &count, &rate, &most) != 3) return 2;
        run(count, (double)rate, most * 1000000u);
    }
}

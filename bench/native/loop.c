/* loop: the least that a delivery costs: one send() per client, in a loop, in C. It proxies nothing and knows no channels.
 *
 *   loop PORT FEED stream|ws JOBS
 *
 * Whoever connects to PORT and asks is held. A line that comes in on FEED goes to all; one that begins with "c", five
 * digits and a blank goes to that client only, in the order in which they came. With several JOBS, as many processes share the clients, and
 * a further one passes the lines on to them.
 */
#include "clock.h"
#include <poll.h>
#include <sys/prctl.h>

static int *fds, many, websocket;

static void write_out(int *fd, const char *data, size_t n) {
    ssize_t sent;
    while ((sent = send(*fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT)) != (ssize_t)n) {
        if (sent > 0) data += sent, n -= (size_t)sent;
        else if (errno == EAGAIN) {
            struct pollfd p = {.fd = *fd, .events = POLLOUT}; /* no queue: everybody waits for the slowest */
            poll(&p, 1, 1000);
        } else {
            shutdown(*fd, SHUT_RDWR);
            return;
        }
    }
}

static void deliver(const char *line, size_t n) {
    static char out[70000];
    size_t k;
    int only = -1;
    if (n > 7 && line[0] == 'c' && line[6] == ' ') only = atoi(line + 1), line += 7, n -= 7;
    if (n > 65535) return;
    if (websocket) {
        out[0] = (char)0x81, out[1] = (char)(n < 126 ? n : 126), k = 2;
        if (n > 125) out[2] = (char)(n >> 8), out[3] = (char)n, k = 4;
        memcpy(out + k, line, n);
        k += n;
    } else {
        k = (size_t)sprintf(out, "%zx\r\n", n + 1);
        memcpy(out + k, line, n);
        memcpy(out + k + n, "\n\r\n", 3);
        k += n + 3;
    }
    if (only >= 0) {
        if (only < many) write_out(&fds[only], out, k);
        return;
    }
    for (int i = 0; i < many; i++) write_out(&fds[i], out, k);
}

/* Take in what came on the feed; 0 at its end. */
static int take(int fd) {
    static char text[1 << 18];
    static size_t filled;
    ssize_t n = recv(fd, text + filled, sizeof text - filled, 0);
    if (n <= 0) return n < 0 && errno == EAGAIN;
    filled += (size_t)n;
    char *at = text, *end;
    while ((end = memchr(at, '\n', filled - (size_t)(at - text)))) {
        deliver(at, (size_t)(end - at));
        at = end + 1;
    }
    filled -= (size_t)(at - text);
    memmove(text, at, filled);
    return 1;
}

static void hold_all(int listener, int feed_listener, int feed) {
    const char *head = websocket ? "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                   "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                                 : "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
                                   "8\r\nwelcome\n\r\n";
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[512];
    char request[8192];
    watch(epoll, listener, EPOLLIN, (uint64_t)listener);
    if (feed_listener >= 0) watch(epoll, feed_listener, EPOLLIN, (uint64_t)feed_listener);
    if (feed >= 0) watch(epoll, feed, EPOLLIN, (uint64_t)feed);
    for (;;) {
        int n = epoll_wait(epoll, events, 512, -1);
        for (int i = 0; i < n; i++) {
            int fd = (int)events[i].data.u64, came;
            if (fd == listener || fd == feed_listener) {
                while ((came = accept4(fd, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    no_delay(came);
                    if (fd == feed_listener) feed = came;
                    watch(epoll, came, EPOLLIN, (uint64_t)came);
                }
            } else if (fd == feed) {
                if (!take(fd)) close(fd), feed = -1;
            } else if (recv(fd, request, sizeof request, 0) <= 0) {
                for (int k = 0; k < many; k++)
                    if (fds[k] == fd) {
                        fds[k] = fds[--many];
                        break;
                    }
                close(fd);
            } else {
                fds[many++] = fd;
                write_out(&fds[many - 1], head, strlen(head));
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int port = atoi(argv[1]), jobs = atoi(argv[4]);
    struct rlimit r;
    raise_limit();
    getrlimit(RLIMIT_NOFILE, &r);
    fds = calloc(r.rlim_cur, sizeof *fds);
    if (!fds) die("calloc");
    websocket = !strcmp(argv[3], "ws");
    int feed_listener = listen_at(atoi(argv[2]), 0);
    if (jobs == 1) hold_all(listen_at(port, 0), feed_listener, -1);
    int pipes[64], parent = getpid();
    if (jobs < 1 || jobs > 64) return 2;
    for (int i = 0; i < jobs; i++) {
        int pair[2], listener = listen_at(port, 1);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) die("socketpair");
        int pid = fork();
        if (pid < 0) die("fork");
        if (!pid) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) return 1;
            fcntl(pair[1], F_SETFL, O_NONBLOCK);
            hold_all(listener, -1, pair[1]);
        }
        pipes[i] = pair[0];
        close(pair[1]);
        close(listener);
    }
    static char text[1 << 16];
    for (;;) {
        struct pollfd p = {.fd = feed_listener, .events = POLLIN};
        poll(&p, 1, -1);
        int feed = accept4(feed_listener, 0, 0, SOCK_CLOEXEC);
        ssize_t n;
        while (feed >= 0 && (n = recv(feed, text, sizeof text, 0)) > 0)
            for (int i = 0; i < jobs; i++)
                if (send(pipes[i], text, (size_t)n, MSG_NOSIGNAL) != n) die("send");
        close(feed);
    }
}

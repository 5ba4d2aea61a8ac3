/* What the load programs have in common: the clock, the mark in a message, sockets to loopback, lines from stdin. */
#pragma once
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* "@0123456789abcdef;": the nanoseconds of the monotonic clock at which the message was made, in hex. */
#define MARK_LENGTH 18

static inline uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void write_mark(char *at, uint64_t t) {
    static const char digits[] = "0123456789abcdef";
    at[0] = '@';
    for (int i = 16; i > 0; i--, t >>= 4) at[i] = digits[t & 15];
    at[17] = ';';
}

/* The time in a mark, or 0 if this is none: an '@' may also be the length byte of a WebSocket frame. */
static inline uint64_t read_mark(const char *at) {
    uint64_t t = 0;
    if (at[0] != '@' || at[17] != ';') return 0;
    for (int i = 1; i <= 16; i++) {
        int c = at[i];
        if (c >= '0' && c <= '9') c -= '0';
        else if (c >= 'a' && c <= 'f') c -= 'a' - 10;
        else return 0;
        t = t << 4 | (uint64_t)c;
    }
    return t;
}

static inline void die(const char *what) {
    perror(what);
    exit(1);
}

/* All descriptors that this process may have. */
static inline void raise_limit(void) {
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    signal(SIGPIPE, SIG_IGN);
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static inline void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline int listen_at(int port, int shared) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = loopback(port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (shared) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 4096)) die("listen");
    return fd;
}

static inline void watch(int ep, int fd, uint32_t events, uint64_t data) {
    struct epoll_event e = {.events = events, .data.u64 = data};
    if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl");
}

/* The next whole line of stdin into `line`; 0 when there is none yet, -1 at the end. */
static inline int next_line(char *line, size_t size) {
    static char buffer[4096];
    static size_t filled;
    char *end = memchr(buffer, '\n', filled);
    if (!end) {
        ssize_t n = read(0, buffer + filled, sizeof buffer - filled);
        if (n == 0) return -1;
        if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        filled += (size_t)n;
        if (!(end = memchr(buffer, '\n', filled))) return 0;
    }
    size_t length = (size_t)(end - buffer);
    if (length >= size) return -1;
    memcpy(line, buffer, length);
    line[length] = 0;
    filled -= length + 1;
    memmove(buffer, end + 1, filled);
    return 1;
}

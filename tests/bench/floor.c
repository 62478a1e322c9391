/* The least that a server of MySQL's protocol can do: greets, takes any login, and answers every
 * query and every execution with the same rows.
 *
 *     floor PORT ROWS WIDTH
 *
 * One column of WIDTH characters. One recv and one send a command, in one thread. What it costs is
 * what a round trip over a socket costs on this machine.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { QUIT = 1, QUERY = 3, PREPARE = 0x16, EXECUTE = 0x17 };
enum { EVENTS = 256, REQUEST_BYTES = 8192 };

struct connection {
    int fd;
    int logged_in;
    size_t received;
    uint8_t request[REQUEST_BYTES];
    const uint8_t *unsent; /* of the answer */
    size_t unsent_bytes;
    uint8_t small[1024]; /* an answer of its own: OK, or that to a PREPARE */
};

static uint8_t greeting[128];
static size_t greeting_bytes;
static uint8_t *rows_answer;
static size_t rows_answer_bytes;

static const uint8_t OK[] = {0, 0, 0, 2, 0, 0, 0};
static const uint8_t END[] = {0xfe, 0, 0, 2, 0};
static const char DEFINITION[] = "\3def\5bench\1t\1t\1c\1c\x0c\x21\0\x68\1\0\0\xfe\1\0\0\0\0";

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Appends a packet; returns the bytes that are there then. */
static size_t packet(uint8_t *to, size_t at, int sequence, const void *payload, size_t bytes) {
    to[at] = bytes & 0xff;
    to[at + 1] = bytes >> 8 & 0xff;
    to[at + 2] = bytes >> 16 & 0xff;
    to[at + 3] = sequence & 0xff;
    memcpy(to + at + 4, payload, bytes);
    return at + 4 + bytes;
}

static void make_greeting(void) {
    uint8_t p[128];
    size_t n = 0;
    p[n++] = 10;
    n += sprintf((char *)p + n, "5.7.0-floor") + 1;
    memcpy(p + n, "\1\0\0\0" "scramble\0" "\xff\xf7\x21\2\0\x0f\x80\x15", 21);
    n += 21;
    memset(p + n, 0, 10);
    n += 10;
    memcpy(p + n, "of20bytes-he\0mysql_native_password", 35);
    n += 35;
    greeting_bytes = packet(greeting, 0, 0, p, n);
}

static void make_rows(long rows, size_t width) {
    uint8_t row[256];
    int sequence = 1;
    rows_answer = malloc(256 + rows * (width + 5));
    if (!rows_answer) fail("malloc");
    size_t n = packet(rows_answer, 0, sequence++, "\1", 1);
    n = packet(rows_answer, n, sequence++, DEFINITION, sizeof DEFINITION - 1);
    n = packet(rows_answer, n, sequence++, END, sizeof END);
    row[0] = width;
    memset(row + 1, 'x', width);
    for (long at = 0; at < rows; at++) n = packet(rows_answer, n, sequence++, row, width + 1);
    rows_answer_bytes = packet(rows_answer, n, sequence, END, sizeof END);
}

static void watch(int ep, int what, struct connection *c, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(ep, what, c->fd, &event)) fail("epoll_ctl");
}

static void greet(int ep, int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), on = 1;
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct connection *c = calloc(1, sizeof *c);
    if (!c) fail("calloc");
    c->fd = fd;
    watch(ep, EPOLL_CTL_ADD, c, EPOLLIN);
    if (send(fd, greeting, greeting_bytes, MSG_NOSIGNAL) < 0) { /* its recv will tell */
    }
}

/* Sends as much as goes; the rest when there is room. */
static void answer(int ep, struct connection *c, const uint8_t *bytes, size_t count) {
    ssize_t sent = send(c->fd, bytes, count, MSG_NOSIGNAL);
    if (sent < 0) sent = 0;
    if ((size_t)sent == count) return;
    c->unsent = bytes + sent;
    c->unsent_bytes = count - sent;
    watch(ep, EPOLL_CTL_MOD, c, EPOLLOUT);
}

static void go_on(int ep, struct connection *c) {
    ssize_t sent = send(c->fd, c->unsent, c->unsent_bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) sent = c->unsent_bytes; /* gone: its recv will tell */
    if (sent > 0) {
        c->unsent += sent;
        c->unsent_bytes -= sent;
    }
    if (!c->unsent_bytes) watch(ep, EPOLL_CTL_MOD, c, EPOLLIN);
}

/* Statement 1, with a parameter for each question mark and no columns. */
static size_t prepared(uint8_t *to, int sequence, const uint8_t *text, size_t bytes) {
    size_t parameters = 0;
    for (size_t at = 0; at < bytes; at++) parameters += text[at] == '?';
    if (parameters > 8) parameters = 8;
    uint8_t head[12] = {0, 1, 0, 0, 0, 0, 0, parameters, 0, 0, 0, 0};
    size_t n = packet(to, 0, ++sequence, head, sizeof head);
    for (size_t at = 0; at < parameters; at++)
        n = packet(to, n, ++sequence, DEFINITION, sizeof DEFINITION - 1);
    return parameters ? packet(to, n, ++sequence, END, sizeof END) : n;
}

/* Answers one command; returns whether the client goes on. */
static int take(int ep, struct connection *c, size_t payload_bytes) {
    int sequence = c->request[3], command = c->request[4];
    if (c->logged_in && command == QUIT) return 0;
    if (c->logged_in && (command == QUERY || command == EXECUTE)) {
        answer(ep, c, rows_answer, rows_answer_bytes);
    } else if (c->logged_in && command == PREPARE) {
        answer(ep, c, c->small, prepared(c->small, sequence, c->request + 5, payload_bytes - 1));
    } else {
        c->logged_in = 1;
        answer(ep, c, c->small, packet(c->small, 0, sequence + 1, OK, sizeof OK));
    }
    return 1;
}

/* Returns whether the connection goes on. */
static int serve(int ep, struct connection *c) {
    ssize_t count = recv(c->fd, c->request + c->received, REQUEST_BYTES - c->received, 0);
    if (count < 0 && errno == EAGAIN) return 1;
    if (count <= 0) return 0;
    c->received += count;
    while (c->received >= 5) {
        size_t payload = c->request[0] | c->request[1] << 8 | c->request[2] << 16;
        if (payload + 4 > REQUEST_BYTES) return 0;
        if (c->received < payload + 4) break;
        if (!take(ep, c, payload)) return 0;
        c->received -= payload + 4;
        if (c->received) memmove(c->request, c->request + payload + 4, c->received);
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4 || atoi(argv[3]) > 250) {
        fprintf(stderr, "usage: floor PORT ROWS WIDTH, WIDTH at most 250\n");
        return 2;
    }
    make_greeting();
    make_rows(atol(argv[2]), atoi(argv[3]));
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, ep = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address)) fail("bind");
    if (listen(listener, 1024)) fail("listen");
    struct connection door = {.fd = listener};
    watch(ep, EPOLL_CTL_ADD, &door, EPOLLIN);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(ep, events, EVENTS, -1);
        for (int at = 0; at < count; at++) {
            struct connection *c = events[at].data.ptr;
            if (c == &door) {
                greet(ep, listener);
            } else if (c->unsent_bytes) {
                go_on(ep, c);
            } else if (!serve(ep, c)) {
                close(c->fd);
                free(c);
            }
        }
    }
}

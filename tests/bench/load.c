/* A closed-loop load on one server, and what it took: each connection sends a command, reads the
 * whole answer, and sends the next.
 *
 *     load --port N [--user U --password P --database D] --statement TEXT ...
 *          [--prepared | --prepare-each | --connect] [--ping] [--get KEY] [--connections N] [--warm S]
 *          [--seconds S | --count N] [--ids N] [--first N] [--cpu PID ...]
 *
 * - Several statements are sent in turn. In a text, {id} stands for a number from 1 to --ids taken at
 *   random, {next} for one after another of these, {new} for one that was never there before, counted
 *   from --first. With --prepared each is prepared once a connection, with parameters (BIGINT) there;
 *   with --prepare-each before each execution, and closed behind it.
 * - --connect: each turn connects, logs in (mysql_native_password), sends all statements once, quits,
 *   and ends with the server's close. --ping: COM_PING in place of statements. --get: memcached's get.
 * - Measures for --seconds, which begin --warm seconds after the last connection stands; with --count
 *   until so many were answered, from the start.
 *
 * Prints a line of JSON: commands (or turns) answered, seconds, bytes received, latencies, and the CPU
 * seconds that this process and those of --cpu took meanwhile, all their threads together. An error
 * of the server ends it with exit code 1: statements that fail measure nothing.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "native_password.h"

enum { QUIT = 1, QUERY = 3, PING = 0x0e, PREPARE = 0x16, EXECUTE = 0x17, CLOSE = 0x19 };
enum { MOST_STATEMENTS = 16, MOST_PARAMETERS = 8, MOST_PIDS = 16, EVENTS = 256, KEPT_BYTES = 512 };
enum { REQUEST_BYTES = 8192, SILENCE_MS = 20000, LONGLONG = 8, ERR = 0xff, END = 0xfe };

enum state { GREETING, LOGIN, PREPARED, PREPARED_DEFINITIONS, FIRST, DEFINITIONS, ROWS, LEAVING };

struct connection {
    int fd;
    enum state state;
    int turn; /* the statement that is next, or is being prepared */
    uint64_t began;
    uint8_t header[4];
    int header_bytes;
    size_t left; /* of the packet's payload, or of memcached's value */
    size_t payload;
    uint8_t kept[KEPT_BYTES]; /* how the payload begins */
    size_t kept_bytes;
    int definitions;
    uint32_t ids[MOST_STATEMENTS];
};

static const char *user = "", *password = "", *database = "", *key;
static const char *statements[MOST_STATEMENTS];
static int statement_count, prepared, prepare_each, connects, pings, port, connection_count = 1;
static double warm_s = 0.2, seconds = 1;
static uint64_t ids = 1, next_id, next_new = 1, to_send = UINT64_MAX, to_answer = UINT64_MAX;
static int pids[MOST_PIDS], pid_count;

static int ep, standing, measuring;
static uint64_t answered, received;
static uint32_t *latencies_ns;
static size_t latency_room;

static void fail(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    vfprintf(stderr, format, rest);
    va_end(rest);
    fputc('\n', stderr);
    exit(1);
}

/* --- clocks --- */

static uint64_t ns_of(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) fail("clock: %s", strerror(errno));
    return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

static uint64_t now_ns(void) { return ns_of(CLOCK_MONOTONIC); }

/* User and system time of all threads of a process, those that have ended among them. */
static uint64_t cpu_ns(int pid) {
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock)) fail("no process %d", pid);
    return ns_of(clock);
}

static void note_latency(uint64_t ns) {
    if (answered == latency_room) {
        latency_room = latency_room ? 2 * latency_room : 1 << 16;
        latencies_ns = realloc(latencies_ns, latency_room * sizeof *latencies_ns);
        if (!latencies_ns) fail("no memory");
    }
    latencies_ns[answered++] = ns < UINT32_MAX ? ns : UINT32_MAX;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile_us(double fraction) {
    return answered ? latencies_ns[(size_t)(fraction * (answered - 1))] / 1e3 : 0;
}

/* --- logging in --- */

static void send_all(struct connection *c, const uint8_t *bytes, size_t count) {
    if (send(c->fd, bytes, count, MSG_NOSIGNAL) != (ssize_t)count) fail("send: %s", strerror(errno));
}

static void send_packet(struct connection *c, int sequence, uint8_t *with_room, size_t payload) {
    with_room[0] = payload & 0xff;
    with_room[1] = payload >> 8 & 0xff;
    with_room[2] = payload >> 16 & 0xff;
    with_room[3] = sequence;
    send_all(c, with_room, payload + 4);
}

static size_t put_string(uint8_t *to, const char *text) {
    size_t bytes = strlen(text) + 1;
    if (bytes > 128) fail("too long: %s", text);
    memcpy(to, text, bytes);
    return bytes;
}

static void log_in(struct connection *c) {
    uint8_t out[1024], scramble[20];
    const uint8_t *version = memchr(c->kept + 1, 0, c->kept_bytes - 1);
    if (!version || version + 45 > c->kept + c->kept_bytes) fail("not a greeting");
    memcpy(scramble, version + 5, 8);
    memcpy(scramble + 8, version + 32, 12);
    /* long password, long flag, schema, protocol 4.1, transactions, secure connection, plugin */
    uint32_t flags = 0x1 | 0x4 | (*database ? 0x8 : 0) | 0x200 | 0x2000 | 0x8000 | 0x80000;
    uint32_t most = 1 << 24;
    size_t n = 4;
    memcpy(out + n, &flags, 4);
    memcpy(out + n + 4, &most, 4);
    out[n + 8] = 33; /* utf8 */
    memset(out + n + 9, 0, 23);
    n += 32;
    n += put_string(out + n, user);
    out[n] = proof(password, scramble, out + n + 1);
    n += out[n] + 1;
    if (*database) n += put_string(out + n, database);
    n += put_string(out + n, "mysql_native_password");
    send_packet(c, 1, out, n - 4);
}

static void log_in_again(struct connection *c) {
    uint8_t out[64];
    const uint8_t *plugin = memchr(c->kept, 0, c->kept_bytes);
    if (!plugin || strcmp((const char *)c->kept + 1, "mysql_native_password"))
        fail("the account wants another kind of login");
    send_packet(c, c->header[3] + 1, out, proof(password, plugin + 1, out + 4));
}

/* --- commands --- */

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint64_t at_random(uint64_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % below;
}

/* The mark at this place of a text, which is moved past it; 0: there is none. */
static char mark(const char **at) {
    static const char *const marks[] = {"{id}", "{next}", "{new}"};
    for (int which = 0; which < 3; which++) {
        size_t bytes = strlen(marks[which]);
        if (!strncmp(*at, marks[which], bytes)) {
            *at += bytes;
            return "inw"[which];
        }
    }
    return 0;
}

/* What a mark stands for this time. */
static uint64_t number(char mark) {
    if (mark == 'i') return 1 + at_random(ids);
    return mark == 'n' ? 1 + next_id++ % ids : next_new++;
}

/* The text with numbers, or question marks, for its marks. */
static size_t put_text(uint8_t *to, const char *text, int question_marks) {
    size_t n = 0;
    while (*text) {
        if (n + 32 > REQUEST_BYTES - 8) fail("a statement is too long");
        char found = mark(&text);
        if (!found) to[n++] = *text++;
        else if (question_marks) to[n++] = '?';
        else n += sprintf((char *)to + n, "%llu", (unsigned long long)number(found));
    }
    return n;
}

static size_t put_execution(uint8_t *to, const char *text, uint32_t id) {
    uint64_t values[MOST_PARAMETERS];
    size_t count = 0, n = 9;
    while (*text) {
        char found = mark(&text);
        if (!found) text++;
        else if (count == MOST_PARAMETERS) fail("too many parameters");
        else values[count++] = number(found);
    }
    memcpy(to, &id, 4);
    memcpy(to + 4, "\0\1\0\0\0", 5);
    if (count) {
        to[n++] = 0; /* none is NULL */
        to[n++] = 1; /* types follow */
        for (size_t i = 0; i < count; i++) to[n++] = LONGLONG, to[n++] = 0;
        memcpy(to + n, values, 8 * count);
        n += 8 * count;
    }
    return n;
}

static void prepare(struct connection *c) {
    uint8_t out[REQUEST_BYTES];
    out[4] = PREPARE;
    send_packet(c, 0, out, put_text(out + 5, statements[c->turn], 1) + 1);
    c->state = PREPARED;
}

static void execute(struct connection *c) {
    uint8_t out[REQUEST_BYTES];
    out[4] = EXECUTE;
    send_packet(c, 0, out, put_execution(out + 5, statements[c->turn], c->ids[c->turn]) + 1);
    c->state = FIRST;
}

static void close_statement(struct connection *c) {
    uint8_t out[9] = {0, 0, 0, 0, CLOSE};
    memcpy(out + 5, &c->ids[c->turn], 4);
    send_packet(c, 0, out, 5);
}

static void send_next(struct connection *c) {
    uint8_t out[REQUEST_BYTES];
    size_t n;
    if (!connects) {
        if (!to_send) return;
        to_send--;
        c->began = now_ns();
    }
    if (key) {
        n = sprintf((char *)out, "get %.200s\r\n", key);
        send_all(c, out, n);
        c->left = 0;
        c->kept_bytes = 0;
        return;
    }
    if (prepare_each) {
        prepare(c);
        return;
    }
    if (prepared) {
        execute(c);
        return;
    }
    c->state = FIRST;
    if (pings) {
        out[4] = PING;
        n = 0;
    } else {
        out[4] = QUERY;
        n = put_text(out + 5, statements[c->turn], 0);
    }
    send_packet(c, 0, out, n + 1);
}

static void quit(struct connection *c) {
    uint8_t out[5] = {0, 0, 0, 0, QUIT};
    send_packet(c, 0, out, 1);
    c->state = LEAVING;
}

static void start_sending(struct connection *c) {
    standing++;
    c->turn = 0;
    send_next(c);
}

static void logged_in(struct connection *c) {
    c->turn = 0;
    if (prepared) prepare(c);
    else if (connects && !statement_count) quit(c);
    else start_sending(c);
}

static void was_prepared(struct connection *c) {
    if (prepare_each) execute(c);
    else if (++c->turn < statement_count) prepare(c);
    else start_sending(c);
}

static void was_answered(struct connection *c) {
    if (prepare_each) close_statement(c);
    if (!connects) {
        if (measuring) note_latency(now_ns() - c->began);
        if (!pings && !key) c->turn = (c->turn + 1) % statement_count;
        send_next(c);
    } else if (++c->turn == statement_count) {
        quit(c);
    } else {
        send_next(c);
    }
}

/* --- answers --- */

static void refuse(struct connection *c) {
    size_t bytes = c->kept_bytes > 3 ? c->kept_bytes - 3 : 0;
    fail("the server says: %.*s", (int)bytes, (const char *)c->kept + 3);
}

/* A packet is complete; of its payload the beginning is there. */
static void take(struct connection *c) {
    int first = c->payload ? c->kept[0] : 0;
    int ends = first == END && c->payload < 9;
    if (first == ERR && c->state != PREPARED_DEFINITIONS && c->state != DEFINITIONS) refuse(c);
    switch (c->state) {
    case GREETING:
        log_in(c);
        c->state = LOGIN;
        break;
    case LOGIN:
        if (first == END) log_in_again(c);
        else if (first == 0) logged_in(c);
        else fail("the account wants another kind of login");
        break;
    case PREPARED: {
        int columns = c->kept[5] | c->kept[6] << 8, parameters = c->kept[7] | c->kept[8] << 8;
        memcpy(&c->ids[c->turn], c->kept + 1, 4);
        c->definitions = (columns ? columns + 1 : 0) + (parameters ? parameters + 1 : 0);
        c->state = PREPARED_DEFINITIONS;
        if (!c->definitions) was_prepared(c);
        break;
    }
    case PREPARED_DEFINITIONS:
        if (!--c->definitions) was_prepared(c);
        break;
    case FIRST:
        if (first == 0) was_answered(c);
        else c->state = DEFINITIONS;
        break;
    case DEFINITIONS:
        if (ends) c->state = ROWS;
        break;
    case ROWS:
        if (ends) was_answered(c);
        break;
    case LEAVING:
        break;
    }
}

static void feed(struct connection *c, const uint8_t *at, size_t count) {
    const uint8_t *end = at + count;
    while (at < end) {
        if (c->header_bytes < 4) {
            c->header[c->header_bytes++] = *at++;
            if (c->header_bytes < 4) continue;
            c->left = c->payload = c->header[0] | c->header[1] << 8 | c->header[2] << 16;
            c->kept_bytes = 0;
        }
        size_t here = (size_t)(end - at) < c->left ? (size_t)(end - at) : c->left;
        /* Of rows and definitions the first byte says all; of the others their words matter. */
        size_t wanted = c->state == ROWS || c->state == DEFINITIONS ? 1 : KEPT_BYTES;
        if (c->kept_bytes < wanted) {
            size_t room = wanted - c->kept_bytes, kept = here < room ? here : room;
            memcpy(c->kept + c->kept_bytes, at, kept);
            c->kept_bytes += kept;
        }
        at += here;
        c->left -= here;
        if (!c->left) {
            c->header_bytes = 0;
            take(c);
        }
    }
}

/* VALUE <key> <flags> <bytes>, the value, END; of the value only its length is looked at. */
static void feed_memcached(struct connection *c, const uint8_t *at, size_t count) {
    const uint8_t *end = at + count;
    while (at < end) {
        if (c->left) {
            size_t here = (size_t)(end - at) < c->left ? (size_t)(end - at) : c->left;
            at += here;
            c->left -= here;
            if (!c->left) was_answered(c);
            continue;
        }
        if (c->kept_bytes == KEPT_BYTES - 1) fail("memcached's answer is none");
        c->kept[c->kept_bytes++] = *at;
        if (*at++ != '\n') continue;
        unsigned long bytes;
        c->kept[c->kept_bytes] = 0;
        if (sscanf((char *)c->kept, "VALUE %*s %*s %lu", &bytes) != 1) fail("memcached has no %s", key);
        c->left = bytes + strlen("\r\nEND\r\n");
    }
}

/* --- connections --- */

static void begin(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    if (connects) {
        if (!to_send) return;
        to_send--;
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->began = now_ns();
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) fail("socket: %s", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS)
        fail("connect: %s", strerror(errno));
    struct epoll_event event = {.events = key ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
    if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    c->state = GREETING;
    c->header_bytes = 0;
}

/* The server has closed: the end of a turn of --connect, and of nothing else. */
static void was_closed(struct connection *c) {
    struct linger none = {1, 0}; /* leaves no TIME_WAIT behind that would use up the ports */
    if (c->state != LEAVING) fail("the server closed a connection");
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(c->fd);
    if (measuring) note_latency(now_ns() - c->began);
    begin(c);
}

static void take_event(struct connection *c, uint32_t events) {
    static uint8_t buffer[1 << 18];
    if (events & EPOLLOUT) { /* connected to memcached, which says nothing first */
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
        start_sending(c);
        return;
    }
    ssize_t count = recv(c->fd, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0 && !(c->state == LEAVING && errno == ECONNRESET)) fail("recv: %s", strerror(errno));
    if (count <= 0) {
        was_closed(c);
        return;
    }
    if (measuring) received += count;
    if (key) feed_memcached(c, buffer, count);
    else feed(c, buffer, count);
}

static void read_options(int argc, char **argv) {
    static const struct option known[] = {
        {"port", 1, 0, 'P'},      {"user", 1, 0, 'u'},    {"password", 1, 0, 'p'},
        {"database", 1, 0, 'D'},  {"statement", 1, 0, 'q'}, {"prepared", 0, 0, 'r'},
        {"prepare-each", 0, 0, 'e'},
        {"connect", 0, 0, 'c'},   {"ping", 0, 0, 'i'},    {"get", 1, 0, 'g'},
        {"connections", 1, 0, 'n'}, {"warm", 1, 0, 'w'},  {"seconds", 1, 0, 's'},
        {"count", 1, 0, 'C'},     {"ids", 1, 0, 'I'},     {"first", 1, 0, 'f'},
        {"cpu", 1, 0, 'x'},       {0, 0, 0, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'P': port = atoi(optarg); break;
        case 'u': user = optarg; break;
        case 'p': password = optarg; break;
        case 'D': database = optarg; break;
        case 'q':
            if (statement_count == MOST_STATEMENTS) fail("too many statements");
            statements[statement_count++] = optarg;
            break;
        case 'r': prepared = 1; break;
        case 'e': prepare_each = 1; break;
        case 'c': connects = 1; break;
        case 'i': pings = 1; break;
        case 'g': key = optarg; break;
        case 'n': connection_count = atoi(optarg); break;
        case 'w': warm_s = atof(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'C': to_send = to_answer = strtoull(optarg, NULL, 10); break;
        case 'I': ids = strtoull(optarg, NULL, 10); break;
        case 'f': next_new = strtoull(optarg, NULL, 10); break;
        case 'x':
            if (pid_count == MOST_PIDS) fail("too many processes");
            pids[pid_count++] = atoi(optarg);
            break;
        default: exit(2);
        }
    }
    if (!port || connection_count < 1 || !ids) fail("--port, --connections and --ids are numbers");
    if (!statement_count && !pings && !key && !connects) fail("nothing to send");
}

int main(int argc, char **argv) {
    uint64_t cpu_before[MOST_PIDS] = {0}, own_before = 0, from = 0, until = UINT64_MAX;
    read_options(argc, argv);
    random_state ^= next_new * 0x2545f4914f6cdd1du;
    ep = epoll_create1(0);
    struct connection *all = calloc(connection_count, sizeof *all);
    if (ep < 0 || !all) fail("no memory");
    for (int at = 0; at < connection_count; at++) begin(&all[at]);
    uint64_t measure_at = to_answer != UINT64_MAX ? 0 : UINT64_MAX;
    for (;;) {
        uint64_t now = now_ns();
        if (measure_at == UINT64_MAX && (standing >= connection_count || connects))
            measure_at = now + (uint64_t)(warm_s * 1e9);
        if (!measuring && now >= measure_at) {
            for (int at = 0; at < pid_count; at++) cpu_before[at] = cpu_ns(pids[at]);
            own_before = ns_of(CLOCK_PROCESS_CPUTIME_ID);
            from = now_ns();
            if (to_answer == UINT64_MAX) until = from + (uint64_t)(seconds * 1e9);
            measuring = 1;
        }
        if (now >= until || answered >= to_answer) break;
        struct epoll_event events[EVENTS];
        int count = epoll_wait(ep, events, EVENTS, SILENCE_MS);
        if (!count) fail("no answer for %d s", SILENCE_MS / 1000);
        for (int at = 0; at < count; at++) take_event(events[at].data.ptr, events[at].events);
    }
    double took_s = (now_ns() - from) / 1e9;
    uint64_t own = ns_of(CLOCK_PROCESS_CPUTIME_ID) - own_before;
    printf("{\"answered\": %llu, \"seconds\": %.6f, \"received\": %llu, \"own_cpu_s\": %.6f, \"cpu_s\": [",
           (unsigned long long)answered, took_s, (unsigned long long)received, own / 1e9);
    for (int at = 0; at < pid_count; at++)
        printf("%s%.6f", at ? ", " : "", (cpu_ns(pids[at]) - cpu_before[at]) / 1e9);
    qsort(latencies_ns, answered, sizeof *latencies_ns, ascending);
    printf("], \"p50_us\": %.1f, \"p95_us\": %.1f}\n", quantile_us(0.5), quantile_us(0.95));
    return 0;
}

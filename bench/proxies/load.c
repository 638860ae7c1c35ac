/* Upstream server and load client of the proxy benchmark, on one epoll loop, so that both need little CPU time.
 *
 * The upstream listens on a free port of 127.0.0.1, which is the first line printed. Each line of standard input is a
 * command, and its result is one line of JSON:
 *
 *   run port=P size=BYTES conns=C (requests=N | millis=MS) [marks=M] [spread=MS]
 *   open port=P size=BYTES conns=C millis=MS [spread=MS]    returns when each connection has received a mark, or after MS
 *   close                                          closes the connections that `open` left open
 *
 * BYTES of an HTTP request follow `run` and `open`; each connection sends it, repeatedly with `run`. A response is short
 * unless it has M marks ("@" in its body).
 *
 * The upstream serves Chat Completions. A token anywhere in the request body selects the response, so that it survives
 * each proxy's rewriting: "bench-n300-k8-r400-t1" streams 300 deltas, 8 for each write, 400 a second.
 *   n deltas; each has one mark    k deltas for each write    r deltas a second, 0: as fast as they are received
 *   t 1: the text is a Hermes tool call    h 1: nothing follows the first write until the client disconnects
 *   l 1: a write follows as soon as the client has received the marks of the previous one (one connection at a time)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LISTENER, COMMANDS, UPSTREAM, CLIENT };
enum { HEAD, SIZED, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, UNTIL_CLOSE };

typedef struct {
  char *data;
  size_t start, end, capacity;
} Buffer;

typedef struct {
  int deltas, per_write, rate, tool, hold, lockstep, usage;
} Script;

typedef struct Peer {
  int kind, fd;
  Buffer in;
  /* upstream */
  Buffer out;
  Script script;
  int streaming, sent, slot, waits_for_output;
  int64_t due, interval;
  /* client */
  int busy, started, state, status, closes, marks, line;
  long left;
} Peer;

static int loop;
static Peer *streams[65536];
static int stream_count;
static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void reserve(Buffer *b, size_t more) {
  if (b->start == b->end)
    b->start = b->end = 0;
  if (b->end + more > b->capacity) {
    b->capacity = (b->end + more) * 2;
    b->data = realloc(b->data, b->capacity);
    if (!b->data)
      fail("realloc");
  }
}

static void append(Buffer *b, const char *data, size_t size) {
  reserve(b, size);
  memcpy(b->data + b->end, data, size);
  b->end += size;
}

static void append_text(Buffer *b, const char *text) { append(b, text, strlen(text)); }

static void watch(Peer *p, int operation, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = p};
  if (epoll_ctl(loop, operation, p->fd, &event))
    fail("epoll_ctl");
}

static Peer *new_peer(int kind, int fd) {
  Peer *p = calloc(1, sizeof *p);
  p->kind = kind;
  p->fd = fd;
  p->slot = -1;
  return p;
}

/* ---- upstream ---- */

static const char STREAM_HEAD[] = "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                  "Cache-Control: no-cache\r\nX-Request-Id: req_bench\r\nTransfer-Encoding: chunked\r\n\r\n";
static const char CHUNK[] = "data: {\"id\":\"chatcmpl-bench0123456789\",\"object\":\"chat.completion.chunk\","
                            "\"created\":1790000000,\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":";
static const char CHUNK_REST[] = ",\"logprobs\":null,\"finish_reason\":null}]}\n\n";
static const char *OPENING[] = {"<tool", "_call>\\n", "{\\\"name\\\": \\\"write_file\\\", \\\"arguments\\\": {",
                                "\\\"content\\\": \\\""};
static const char CLOSING[] = "\\\"}}\\n</tool_call>";
static const char *WORDS[] = {"@The ", "@file ", "@adds ", "@up ", "@open ", "@orders, ", "@paid ", "@ones "};
static char whole[4096], models[512];

static int number_after(const char *text, const char *end, char key, int fallback) {
  for (; text + 1 < end && *text == '-'; text++) {
    char found = *++text;
    int value = 0;
    for (text++; text < end && *text >= '0' && *text <= '9'; text++)
      value = value * 10 + *text - '0';
    if (found == key)
      return value;
    text--;
  }
  return fallback;
}

static int is_true(const char *body, size_t size, const char *key) {
  const char *end = body + size, *at = memmem(body, size, key, strlen(key));
  if (!at)
    return 0;
  for (at += strlen(key); at < end && (*at == ' ' || *at == ':'); at++)
    ;
  return at < end && *at == 't';
}

static Script read_script(const char *body, size_t size) {
  const char *at = memmem(body, size, "bench-n", 7), *end = body + size;
  at = at ? at + 5 : end;
  Script s = {.deltas = number_after(at, end, 'n', 16), .per_write = number_after(at, end, 'k', 1)};
  s.rate = number_after(at, end, 'r', 0);
  s.tool = number_after(at, end, 't', 0);
  s.hold = number_after(at, end, 'h', 0);
  s.lockstep = number_after(at, end, 'l', 0);
  s.usage = is_true(body, size, "\"include_usage\"");
  return s;
}

static void append_delta(Buffer *b, const char *field, const char *text) {
  append(b, CHUNK, sizeof CHUNK - 1);
  append_text(b, field);
  append_text(b, text);
  append_text(b, "\"}");
  append(b, CHUNK_REST, sizeof CHUNK_REST - 1);
}

/* The deltas that the write adds to its HTTP chunk; returns whether they are the last. */
static int append_deltas(Buffer *b, Peer *p) {
  Script *s = &p->script;
  if (p->sent == 0) {
    append_delta(b, "{\"role\":\"assistant\",\"content\":\"", "");
    for (size_t i = 0; s->tool && i < sizeof OPENING / sizeof *OPENING; i++)
      append_delta(b, "{\"content\":\"", OPENING[i]);
  }
  int last = p->sent >= s->deltas;
  for (int i = 0; i < s->per_write && p->sent < s->deltas; i++)
    append_delta(b, "{\"content\":\"", WORDS[p->sent++ % 8]);
  if (!last)
    return 0;
  if (s->tool)
    append_delta(b, "{\"content\":\"", CLOSING);
  append(b, CHUNK, sizeof CHUNK - 1);
  append_text(b, "{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n");
  if (s->usage)
    append_text(b, "data: {\"id\":\"chatcmpl-bench0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,"
                   "\"model\":\"bench\",\"choices\":[],\"usage\":{\"prompt_tokens\":42,\"completion_tokens\":300,"
                   "\"total_tokens\":342}}\n\n");
  append_text(b, "data: [DONE]\n\n");
  return 1;
}

static void stop_stream(Peer *p) {
  if (p->slot >= 0) {
    streams[p->slot] = streams[--stream_count];
    streams[p->slot]->slot = p->slot;
    p->slot = -1;
  }
  p->streaming = 0;
}

static void drop_upstream(Peer *p) {
  stop_stream(p);
  close(p->fd);
  p->fd = -1; /* freed after the events that epoll has already returned */
}

static void flush(Peer *p) {
  Buffer *b = &p->out;
  while (b->start < b->end) {
    ssize_t size = send(p->fd, b->data + b->start, b->end - b->start, MSG_NOSIGNAL);
    if (size < 0 && errno == EAGAIN)
      break;
    if (size < 0) {
      drop_upstream(p);
      return;
    }
    b->start += size;
  }
  int waits = b->start < b->end;
  if (waits != p->waits_for_output)
    watch(p, EPOLL_CTL_MOD, EPOLLIN | (waits ? EPOLLOUT : 0));
  p->waits_for_output = waits;
}

static void step(Peer *p) {
  Buffer *b = &p->out;
  char size[16];
  if (p->sent == 0)
    append(b, STREAM_HEAD, sizeof STREAM_HEAD - 1);
  append(b, "000000\r\n", 8);
  size_t body = b->end - b->start; /* an offset from start: the buffer may move */
  int last = append_deltas(b, p);
  snprintf(size, sizeof size, "%06zx", b->end - b->start - body);
  memcpy(b->data + b->start + body - 8, size, 6);
  append(b, "\r\n", 2);
  if (last)
    append(b, "0\r\n\r\n", 5);
  if (last || p->script.hold)
    stop_stream(p);
  flush(p);
}

static void respond(Peer *p, const char *line, size_t line_size, const char *body, size_t size) {
  if (memmem(line, line_size, "/models", 7))
    append_text(&p->out, models);
  else if (line[0] != 'P')
    append_text(&p->out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  else if (is_true(body, size, "\"stream\"")) {
    p->script = read_script(body, size);
    p->sent = 0;
    p->streaming = 1;
    p->interval = p->script.rate ? 1000000000LL * p->script.per_write / p->script.rate : 0;
    p->due = now_ns() + p->interval;
    p->slot = stream_count;
    streams[stream_count++] = p;
    step(p);
    return;
  } else
    append_text(&p->out, whole);
  flush(p);
}

/* Decodes a chunked body in place; returns its encoded size, 0 if it is incomplete. */
static size_t dechunk(char *body, size_t size, size_t *decoded) {
  size_t at = 0;
  *decoded = 0;
  for (;;) {
    char *line = memmem(body + at, size - at, "\r\n", 2);
    if (!line)
      return 0;
    size_t length = strtoul(body + at, NULL, 16), data = line + 2 - body;
    if (data + length + 2 > size)
      return 0;
    memmove(body + *decoded, body + data, length);
    *decoded += length;
    at = data + length + 2;
    if (!length)
      return at;
  }
}

static void read_requests(Peer *p) {
  while (!p->streaming && p->fd >= 0) {
    Buffer *b = &p->in;
    char *data = b->data + b->start;
    char *end = memmem(data, b->end - b->start, "\r\n\r\n", 4);
    if (!end)
      return;
    size_t head = end + 4 - data, rest = b->end - b->start - head, size = 0, encoded = 0;
    *end = 0;
    char *length = strcasestr(data, "\r\ncontent-length:");
    if (length)
      encoded = size = strtoul(length + 17, NULL, 10);
    int complete = encoded <= rest;
    if (!length && strcasestr(data, "\r\ntransfer-encoding: chunked")) {
      /* decoded only when the last chunk is there, as decoding changes the buffer */
      complete = rest >= 5 && !memcmp(b->data + b->end - 5, "0\r\n\r\n", 5);
      complete = complete && (encoded = dechunk(data + head, rest, &size));
    }
    if (!complete) {
      *end = '\r';
      return;
    }
    b->start += head + encoded;
    respond(p, data, strcspn(data, "\r\n"), data + head, size);
  }
}

/* ---- client ---- */

static struct {
  Peer **peers;
  int port, conns, open, is_hold, marks, aborted;
  long requests, started, done, failed, short_, status, all_marks, spread;
  int64_t began, until;
  char *request;
  long size, read;
} run;
static enum { IDLE, ACTIVE, OPEN, CLOSING_RUN } active;

/* Returns whether it is connected; if not, the run ends. */
static int connect_client(Peer *p) {
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(run.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int yes = 1;
  if (p->fd >= 0)
    close(p->fd);
  p->fd = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (connect(p->fd, (void *)&address, sizeof address)) {
    run.failed++;
    run.aborted = 1;
    return 0;
  }
  fcntl(p->fd, F_SETFL, O_NONBLOCK);
  watch(p, EPOLL_CTL_ADD, EPOLLIN);
  return 1;
}

static int has_more(void) {
  if (run.aborted)
    return 0;
  return run.requests ? run.started < run.requests : now_ns() < run.until;
}

static void send_request(Peer *p) {
  p->started = 1;
  if (!has_more())
    return;
  run.started++;
  p->state = HEAD;
  p->status = p->closes = p->marks = p->line = 0;
  p->in.start = p->in.end = 0;
  if (send(p->fd, run.request, run.size, MSG_NOSIGNAL) != run.size) {
    /* the server closed the idle connection */
    if (!connect_client(p) || send(p->fd, run.request, run.size, MSG_NOSIGNAL) != run.size) {
      run.failed++;
      return;
    }
  }
  p->busy = 1;
}

static void complete(Peer *p, int is_valid) {
  p->busy = 0;
  if (!is_valid || p->status != 200) {
    run.failed++;
    run.status = p->status;
  } else {
    run.done++;
    run.short_ += run.marks && p->marks != run.marks;
  }
  if (p->closes || !is_valid)
    connect_client(p);
  if (run.is_hold && !is_valid)
    return;
  send_request(p);
}

static void count_marks(Peer *p, const char *data, long size) {
  int before = p->marks;
  for (const char *end = data + size; data < end && (data = memchr(data, '@', end - data)); data++)
    p->marks++;
  run.all_marks += p->marks - before;
  if (run.is_hold && !before && p->marks)
    run.open++;
}

static int read_head(Peer *p) {
  Buffer *b = &p->in;
  char *data = b->data + b->start, *end = memmem(data, b->end - b->start, "\r\n\r\n", 4);
  if (!end)
    return 0;
  *end = 0;
  p->status = atoi(data + 9);
  char *length = strcasestr(data, "\r\ncontent-length:");
  p->left = length ? atol(length + 17) : 0;
  p->closes = strcasestr(data, "\r\nconnection: close") != NULL;
  p->state = length ? SIZED : strcasestr(data, "\r\ntransfer-encoding: chunked") ? CHUNK_SIZE : UNTIL_CLOSE;
  b->start += end + 4 - data;
  return 1;
}

/* Consumes a part of a body; returns 0 if more bytes are needed. */
static int read_part(Peer *p) {
  Buffer *b = &p->in;
  long size = b->end - b->start;
  char *data = b->data + b->start;
  if (p->state == CHUNK_SIZE || p->state == CHUNK_END || p->state == TRAILER) {
    char *line = memmem(data, size, "\r\n", 2);
    if (!line)
      return 0;
    b->start += line + 2 - data;
    if (p->state == CHUNK_SIZE) {
      p->left = strtol(data, NULL, 16);
      p->state = p->left ? CHUNK_DATA : TRAILER;
    } else if (p->state == CHUNK_END)
      p->state = CHUNK_SIZE;
    else if (line == data)
      complete(p, 1);
    return 1;
  }
  long taken = p->state == UNTIL_CLOSE || size < p->left ? size : p->left;
  if (!taken && p->left)
    return 0;
  count_marks(p, data, taken);
  b->start += taken;
  p->left -= taken;
  if (p->state == UNTIL_CLOSE || p->left)
    return 0;
  if (p->state == CHUNK_DATA)
    p->state = CHUNK_END;
  else
    complete(p, 1);
  return 1;
}

static void receive_client(Peer *p) {
  reserve(&p->in, 65536);
  ssize_t size = recv(p->fd, p->in.data + p->in.end, 65536, 0);
  if (size < 0 && errno == EAGAIN)
    return;
  if (size <= 0) {
    if (p->busy) {
      p->closes = 1;
      complete(p, p->state == UNTIL_CLOSE && size == 0);
    } else
      connect_client(p);
    return;
  }
  p->in.end += size;
  while (p->busy && (p->state == HEAD ? read_head(p) : read_part(p)))
    ;
  for (int i = 0; i < stream_count; i++)
    if (streams[i]->script.lockstep && p->busy && p->marks == streams[i]->sent)
      step(streams[i]);
}

/* ---- commands ---- */

static void report(void) {
  printf("{\"done\":%ld,\"failed\":%ld,\"short\":%ld,\"marks\":%ld,\"status\":%ld,\"seconds\":%.6f}\n", run.done,
         run.failed, run.short_, run.all_marks, run.status, (now_ns() - run.began) / 1e9);
  fflush(stdout);
}

static void end_run(void) {
  for (int i = 0; i < run.conns; i++) {
    close(run.peers[i]->fd);
    free(run.peers[i]->in.data);
    free(run.peers[i]);
  }
  free(run.peers);
  free(run.request);
  memset(&run, 0, sizeof run);
  active = IDLE;
}

static long option(const char *line, const char *name) {
  char key[32];
  snprintf(key, sizeof key, " %s=", name);
  const char *at = strstr(line, key);
  return at ? atol(at + strlen(key)) : 0;
}

static void begin_run(const char *line) {
  run.is_hold = !strncmp(line, "open ", 5);
  run.port = option(line, "port");
  run.conns = option(line, "conns");
  run.requests = run.is_hold ? run.conns : option(line, "requests");
  run.marks = option(line, "marks");
  run.spread = option(line, "spread") * 1000000;
  run.size = option(line, "size");
  run.request = malloc(run.size);
  for (long size; run.read < run.size; run.read += size)
    if ((size = fread(run.request + run.read, 1, run.size - run.read, stdin)) <= 0)
      fail("fread");
  run.peers = calloc(run.conns, sizeof *run.peers);
  for (int i = 0; i < run.conns; i++)
    connect_client(run.peers[i] = new_peer(CLIENT, -1));
  run.began = now_ns();
  run.until = run.began + option(line, "millis") * 1000000;
  active = ACTIVE;
}

static void read_command(void) {
  char line[512];
  if (!fgets(line, sizeof line, stdin))
    exit(0);
  if (!strncmp(line, "close", 5))
    active = CLOSING_RUN;
  else
    begin_run(line);
}

static void start_due_clients(void) {
  int64_t elapsed = now_ns() - run.began;
  for (int i = 0; i < run.conns; i++)
    if (!run.peers[i]->started && elapsed >= run.spread / run.conns * i)
      send_request(run.peers[i]);
}

/* Starts and finishes the run; returns whether a connection is still to be started. */
static int advance_run(void) {
  int busy = 0, waiting = 0;
  if (active == CLOSING_RUN) { /* here, as epoll may have returned events of the connections before */
    report();
    end_run();
  }
  if (active == IDLE)
    return 0;
  start_due_clients();
  for (int i = 0; i < run.conns; i++) {
    busy += run.peers[i]->busy;
    waiting += !run.peers[i]->started;
  }
  if (run.is_hold && active == ACTIVE && (run.open + run.failed >= run.conns || now_ns() > run.until)) {
    run.done = run.open;
    report();
    active = OPEN; /* until `close` */
  } else if (!run.is_hold && !busy && !waiting) {
    report();
    end_run();
  }
  return waiting;
}

static int64_t step_due_streams(void) {
  int64_t now = now_ns(), next = -1;
  for (int i = stream_count - 1; i >= 0; i--) {
    Peer *p = streams[i];
    if (p->script.lockstep || p->waits_for_output)
      continue;
    if (p->due <= now) {
      p->due = p->due + 4 * p->interval < now ? now + p->interval : p->due + p->interval;
      step(p);
    }
    if (p->streaming && (next < 0 || p->due < next))
      next = p->due;
  }
  return next;
}

static void accept_all(int listener) {
  int fd, yes = 1;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    watch(new_peer(UPSTREAM, fd), EPOLL_CTL_ADD, EPOLLIN);
  }
}

static void receive_upstream(Peer *p, uint32_t events) {
  if (events & EPOLLOUT)
    flush(p);
  if (p->fd < 0 || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
    return;
  reserve(&p->in, 65536);
  ssize_t size = recv(p->fd, p->in.data + p->in.end, 65536, 0);
  if (size < 0 && errno == EAGAIN)
    return;
  if (size <= 0) {
    drop_upstream(p);
    return;
  }
  p->in.end += size;
}

static void free_upstream(Peer *p) {
  free(p->in.data);
  free(p->out.data);
  free(p);
}

static void handle(Peer *p, uint32_t events) {
  if (p->kind == LISTENER)
    accept_all(p->fd);
  else if (p->kind == COMMANDS)
    read_command();
  else if (p->kind == CLIENT)
    receive_client(p);
  else {
    receive_upstream(p, events);
    read_requests(p);
    if (p->fd < 0)
      free_upstream(p);
  }
}

static void write_constants(void) {
  char body[2048] = "{\"id\":\"chatcmpl-bench0123456789\",\"object\":\"chat.completion\",\"created\":1790000000,"
                    "\"model\":\"bench\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"";
  for (int i = 0; i < 80; i++)
    strcat(body, WORDS[i % 8]);
  strcat(body, "\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":42,"
               "\"completion_tokens\":80,\"total_tokens\":122},\"system_fingerprint\":\"fp_bench\"}");
  snprintf(whole, sizeof whole,
           "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: application/json\r\nX-Request-Id: req_bench\r\n"
           "Content-Length: %zu\r\n\r\n%s",
           strlen(body), body);
  const char *list = "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"created\":1790000000,"
                     "\"owned_by\":\"bench\"}]}";
  snprintf(models, sizeof models, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
           strlen(list), list);
}

int main(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (bind(listener, (void *)&address, size) || listen(listener, 4096) || getsockname(listener, (void *)&address, &size))
    fail("listen");
  write_constants();
  setvbuf(stdin, NULL, _IONBF, 0); /* epoll does not see what stdio has buffered */
  loop = epoll_create1(0);
  watch(new_peer(LISTENER, listener), EPOLL_CTL_ADD, EPOLLIN);
  watch(new_peer(COMMANDS, 0), EPOLL_CTL_ADD, EPOLLIN);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  for (;;) {
    struct epoll_event events[256];
    int waiting = advance_run();
    int64_t next = step_due_streams(), now = now_ns();
    int64_t pause = next < 0 ? 1000000000 : next > now ? next - now : 0;
    if (waiting && pause > 500000)
      pause = 500000;
    struct timespec timeout = {pause / 1000000000, pause % 1000000000};
    int count = epoll_pwait2(loop, events, 256, &timeout, NULL);
    for (int i = 0; i < count; i++)
      handle(events[i].data.ptr, events[i].events);
  }
}

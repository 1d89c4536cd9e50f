// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mappings.h"
#include "pointed.h"
#include "qemu_api.h"

#define MAX_POINTERS 1024u
#define MAX_PATH 254u /* further bytes do not say whose file it is */
#define MAX_STRING 4096u
#define MAX_BYTES 65536u
#define MAX_ELEMENTS 2048u
#define GUEST_PAGE 4096u
#define ANY_WORD UINT64_MAX /* a mask: what lies within a mapping is an address */

static struct {
	struct pointer at[MAX_POINTERS]; /* by number */
	unsigned int count;
	GByteArray *bytes;
} pointed;

void pointed_begin(void)
{
	pointed.bytes = g_byte_array_new();
}

bool pointed_read(const char *text)
{
	for (char *end;; text = end + 1) {
		uint64_t words[7];

		if (pointed.count == MAX_POINTERS)
			return false;
		for (unsigned int i = 0; i < 7; i++, text = end + 1) {
			words[i] = strtoull(text, &end, 10);
			if (end == text || (i < 6 && *end != '.'))
				return false;
		}
		if (words[1] > CALL_ARGUMENTS || words[2] >= KINDS || words[4] > CALL_ARGUMENTS)
			return false;
		memcpy(&pointed.at[pointed.count++], words, sizeof(words));
		if (*end != ':')
			return !*end;
	}
}

bool pointed_wanted(void)
{
	return pointed.count;
}

const struct pointer *pointers_of(uint64_t number, unsigned int *count)
{
	unsigned int first = 0;

	while (first < pointed.count && pointed.at[first].number != number)
		first++;
	for (*count = 0; first + *count < pointed.count;)
		if (pointed.at[first + (*count)++].number != number) {
			--*count;
			break;
		}
	return pointed.at + first;
}

bool call_is(uint64_t number, enum kind kind)
{
	unsigned int count;
	const struct pointer *pointer = pointers_of(number, &count);

	for (; count; count--, pointer++)
		if (pointer->kind == kind)
			return true;
	return false;
}

static void feed_places(struct pointed_at *digest, const uint8_t *bytes, size_t size)
{
	const unsigned int half = PLACES_OF_BYTES / 2;

	for (size_t i = 0; i < size; i++, digest->size++) {
		uint32_t *place = &digest->place[digest->size % half];

		*place = (*place + 1 + bytes[i]) * 0x01000193;
		if (digest->size < half)
			continue;
		place = &digest->place[half + digest->size / half % half];
		*place = (*place + 1 + bytes[i]) * 0x01000193;
	}
}

/* At once: data may be long. */
static void feed_word(struct pointed_at *digest, uint64_t word)
{
	digest->hash = (digest->hash ^ word) * 0x100000001b3ULL;
	digest->hash ^= digest->hash >> 32;
	feed_places(digest, (const uint8_t *)&word, sizeof(word));
}

static void feed(struct pointed_at *digest, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		digest->hash = (digest->hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3ULL;
	feed_places(digest, bytes, size);
}

static void feed_address(struct pointed_at *digest, uint64_t address)
{
	feed_word(digest, address_value(address));
}

/* What is not there is 0, and the digest is not whole. */
static void fetch(struct pointed_at *digest, uint64_t address, void *to, size_t size)
{
	memset(to, 0, size);
	for (size_t done = 0, part; done < size; done += part) {
		part = GUEST_PAGE - (address + done) % GUEST_PAGE;
		part = part < size - done ? part : size - done;
		if (!qemu_plugin_read_memory_vaddr(address + done, pointed.bytes, part)) {
			digest->whole = false;
			return;
		}
		memcpy((uint8_t *)to + done, pointed.bytes->data, part);
	}
}

/* Records of so many bytes, of which some words are addresses. */
static void feed_records(struct pointed_at *digest, uint64_t address, uint64_t size, uint64_t each,
			 uint64_t mask)
{
	static uint8_t room[MAX_BYTES + 8];
	uint64_t word;

	size = size < MAX_BYTES ? size : MAX_BYTES;
	fetch(digest, address, room, size);
	if (each < 8)
		each = MAX_BYTES;
	for (uint64_t at = 0; at < size; at += 8) {
		uint64_t which = at % each / 8;

		memcpy(&word, room + at, 8);
		if (size - at < 8)
			feed(digest, room + at, size - at);
		else if (mask == ANY_WORD ? mapping_has(word) : which < 64 && mask >> which & 1)
			feed_address(digest, word);
		else
			feed_word(digest, word);
	}
}

static void feed_bytes(struct pointed_at *digest, uint64_t address, uint64_t size, uint64_t most)
{
	feed_records(digest, address, size < most ? size : most, 8, 0);
}

static const struct pointed_at NOTHING = { .hash = 0xcbf29ce484222325ULL, .whole = true };

static uint64_t in_page(uint64_t address, uint64_t most)
{
	uint64_t left = GUEST_PAGE - address % GUEST_PAGE;

	return left < most ? left : most;
}

/* The number of a task in a path of /proc is the kernel's: what comes in front, and behind. */
static uint64_t task_path(struct pointed_at *digest, uint64_t address)
{
	static const char proc[] = "/proc/";
	char room[16] = "";
	uint64_t skipped = sizeof(proc) - 1;

	fetch(digest, address, room, in_page(address, sizeof(room) - 1));
	if (strncmp(room, proc, skipped) || room[skipped] < '0' || room[skipped] > '9')
		return 0;
	feed(digest, proc, skipped);
	return skipped + strspn(room + skipped, "0123456789");
}

static void feed_string(struct pointed_at *digest, uint64_t address)
{
	char room[GUEST_PAGE];

	address += task_path(digest, address);
	for (uint64_t done = 0, part; done < MAX_STRING; done += part) {
		part = in_page(address + done, GUEST_PAGE);
		fetch(digest, address + done, room, part);
		feed(digest, room, strnlen(room, part));
		if (!digest->whole || memchr(room, 0, part))
			return;
	}
}

static void feed_strings(struct pointed_at *digest, uint64_t address)
{
	uint64_t word;

	for (unsigned int i = 0; address >= LEAST_ADDRESS && i < MAX_ELEMENTS; i++) {
		fetch(digest, address + 8 * i, &word, 8);
		if (!word)
			break;
		feed_string(digest, word);
		feed_word(digest, i);
	}
}

static void feed_vectors(struct pointed_at *digest, uint64_t address, uint64_t count, bool data)
{
	uint64_t vector[2];

	for (uint64_t i = 0; i < count && i < MAX_ELEMENTS; i++) {
		fetch(digest, address + i * sizeof(vector), vector, sizeof(vector));
		feed_address(digest, vector[0]);
		feed_word(digest, vector[1]);
		if (data)
			feed_bytes(digest, vector[0], vector[1], MAX_BYTES);
	}
}

/*
 * The path of a local one ends where it ends, and no reader looks behind; one of netlink may have
 * the number of a task.
 */
static void feed_socket_address(struct pointed_at *digest, uint64_t address, uint64_t size)
{
	enum { LOCAL = 1, NETLINK = 16 };
	uint8_t room[128];

	size = size < sizeof(room) ? size : sizeof(room);
	fetch(digest, address, room, size);
	if (size > 2 && room[0] == LOCAL && room[2])
		size = 2 + strnlen((char *)room + 2, size - 2);
	if (size > 8 && room[0] == NETLINK)
		memset(room + 4, 0, 4);
	feed(digest, room, size);
}

/* struct cmsghdr and what is behind each; numbers of tasks are the kernel's. */
static void feed_controls(struct pointed_at *digest, uint64_t address, uint64_t size)
{
	struct {
		uint64_t length;
		int32_t level, type;
	} head;

	for (uint64_t at = 0; at + sizeof(head) <= size && at < MAX_BYTES;) {
		fetch(digest, address + at, &head, sizeof(head));
		feed(digest, &head, sizeof(head));
		if (head.length < sizeof(head) || head.length > size - at)
			break;
		if (head.type != 2) /* SCM_CREDENTIALS */
			feed_bytes(digest, address + at + sizeof(head), head.length - sizeof(head),
				   MAX_BYTES);
		at += (head.length + 7) & ~7ULL;
	}
}

static void feed_messages(struct pointed_at *digest, uint64_t address, uint64_t each, uint64_t count,
			  bool sent)
{
	struct {
		uint64_t name, name_size, vectors, count, control, control_size, flags;
	} head;

	for (uint64_t i = 0; i < count && i < MAX_ELEMENTS; i++) {
		fetch(digest, address + i * each, &head, sizeof(head));
		head.name_size &= UINT32_MAX;
		feed_word(digest, head.name ? head.name_size : 0);
		feed_word(digest, head.control_size);
		feed_word(digest, head.count);
		feed_vectors(digest, head.vectors, head.count, sent);
		if (sent && head.name)
			feed_socket_address(digest, head.name, head.name_size);
		if (sent && head.control)
			feed_controls(digest, head.control, head.control_size);
	}
}

static void feed_filter(struct pointed_at *digest, uint64_t address)
{
	uint64_t head[2];

	fetch(digest, address, head, sizeof(head));
	head[0] &= UINT16_MAX;
	feed_word(digest, head[0]);
	feed_bytes(digest, head[1], 8 * head[0], MAX_BYTES);
}

static void feed_option(struct pointed_at *digest, const uint64_t arguments[CALL_ARGUMENTS])
{
	enum { LEVEL = 1, FILTER = 26, REUSE_FILTER = 51 }; /* SOL_SOCKET, SO_ATTACH_... */
	bool filter = arguments[2] == FILTER || arguments[2] == REUSE_FILTER;

	if (arguments[1] == LEVEL && filter)
		feed_filter(digest, arguments[3]);
	else
		feed_bytes(digest, arguments[3], arguments[4] & UINT32_MAX, GUEST_PAGE);
}

bool is_lock_number(uint64_t command)
{
	switch (command) {
	case 0: /* F_DUPFD, F_SETFD, F_SETFL, F_SETSIG */
	case 2:
	case 4:
	case 10:
	case 1024: /* F_SETLEASE, F_NOTIFY, F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_ADD_SEALS */
	case 1026:
	case 1030:
	case 1031:
	case 1033:
		return true;
	default: /* what is there may be left over */
		return false;
	}
}

/* struct flock but for its holes, or the number that another command has there, if any. */
static void feed_lock(struct pointed_at *digest, const uint64_t arguments[CALL_ARGUMENTS])
{
	uint64_t command = arguments[1];

	if (is_lock_number(command)) {
		feed_word(digest, arguments[2]);
	} else if (command - 5 < 3 || command - 36 < 3) { /* F_GETLK, F_SETLK, F_SETLKW, by open files */
		feed_bytes(digest, arguments[2], 4, 4);
		feed_bytes(digest, arguments[2] + 8, 16, 16);
	}
}

/*
 * How many bytes the kernel reads for a request that does not say it: an int, but for some of
 * terminals, and none where it only writes.
 */
static uint64_t old_request(uint64_t request)
{
	switch (request) {
	case 0x5401: /* TCGETS, TCGETA, TIOCGPGRP, TIOCOUTQ, TIOCGWINSZ, FIONREAD, TIOCGSID */
	case 0x5405:
	case 0x540f:
	case 0x5411:
	case 0x5413:
	case 0x541b:
	case 0x5429:
		return 0;
	case 0x5402: /* TCSETS, TCSETSW, TCSETSF */
	case 0x5403:
	case 0x5404:
		return 36;
	case 0x5406: /* TCSETA, TCSETAW, TCSETAF */
	case 0x5407:
	case 0x5408:
		return 17;
	case 0x5414: /* TIOCSWINSZ */
		return 8;
	default:
		return 4;
	}
}

/* What the kernel reads at them, and how much, each request knows for itself. */
static void find_pointers(struct pointed_at *digest, uint64_t address, uint64_t size)
{
	uint64_t word;

	for (uint64_t at = 0; at + sizeof(word) <= size && !digest->unseen; at += sizeof(word)) {
		fetch(digest, address + at, &word, sizeof(word));
		digest->unseen = word >= LEAST_ADDRESS && !(word >> 47) &&
				 (mapping_has(word) || heap_value(word) ||
				  qemu_plugin_read_memory_vaddr(word, pointed.bytes, 1));
	}
}

static void feed_request(struct pointed_at *digest, const uint64_t arguments[CALL_ARGUMENTS])
{
	enum { SOCKETS = 0x89, IFREQ = 40 };
	uint64_t request = arguments[1] & UINT32_MAX, size = request >> 16 & 0x3fff;

	if (request >> 8 == SOCKETS)
		size = IFREQ;
	else if (request <= UINT16_MAX) /* of before they told their size */
		size = old_request(request);
	else if (!(request >> 30 & 1)) /* the kernel does not read there */
		size = 0;
	if (arguments[2] < LEAST_ADDRESS) {
		feed_word(digest, arguments[2]);
	} else if (size) {
		feed_records(digest, arguments[2], size, size, ANY_WORD);
		find_pointers(digest, arguments[2], size);
	}
}

static void feed_program(struct pointed_at *digest, const uint64_t arguments[CALL_ARGUMENTS])
{
	enum { LOAD = 5, MOST = 144, MAP_CALLS = 0x20000e }; /* those with a key and a value */
	uint64_t command = arguments[0], size = arguments[2] & UINT32_MAX, head[2];
	uint64_t mask = command == LOAD ? 0x16 : command < 32 && MAP_CALLS >> command & 1 ? 0x6 : 0;

	size = size < MOST ? size : MOST;
	feed_records(digest, arguments[1], size, MOST, mask);
	if (command != LOAD)
		find_pointers(digest, arguments[1], size);
	if (command != LOAD || size < sizeof(head))
		return;
	fetch(digest, arguments[1], head, sizeof(head));
	feed_bytes(digest, head[1], (head[0] >> 32) * 8, MAX_BYTES);
}

/* How many locks there are, and their flags; who has them is told by numbers of the kernel's. */
static void feed_robust(struct pointed_at *digest, uint64_t list)
{
	uint64_t head[3], next;
	uint32_t word;

	if (list < LEAST_ADDRESS)
		return;
	fetch(digest, list, head, sizeof(head));
	next = head[0] & ~1ULL;
	for (unsigned int i = 0; next != list && digest->whole && i < MAX_ELEMENTS; i++) {
		fetch(digest, next + head[1], &word, sizeof(word));
		word = (word & 0xc0000000) | !!(word & 0x3fffffff);
		feed(digest, &word, sizeof(word));
		fetch(digest, next, &next, sizeof(next));
		next &= ~1ULL;
	}
}

static void feed_pointer(struct pointed_at *digest, const struct pointer *pointer,
		       const uint64_t arguments[CALL_ARGUMENTS], uint64_t robust)
{
	uint64_t address = pointer->argument ? arguments[pointer->argument - 1] : robust;
	uint64_t count = pointer->count ? arguments[pointer->count - 1] : 1;

	if (pointer->kind == KIND_LOCK)
		feed_lock(digest, arguments);
	else if (pointer->kind == KIND_REQUEST)
		feed_request(digest, arguments);
	else if (pointer->kind == KIND_FILTER && arguments[0] != pointer->each)
		return; /* what is there may be left over */
	else if (address < LEAST_ADDRESS || pointer->kind == KIND_ADDRESS)
		feed_address(digest, address);
	else if (pointer->kind == KIND_STRING)
		feed_string(digest, address);
	else if (pointer->kind == KIND_BYTES)
		feed_records(digest, address, pointer->base + pointer->each * count, pointer->each,
			     pointer->mask);
	else if (pointer->kind == KIND_BITS)
		feed_bytes(digest, address, (count + 63) / 64 * 8, MAX_BYTES);
	else if (pointer->kind == KIND_STRINGS)
		feed_strings(digest, address);
	else if (pointer->kind == KIND_VECTORS || pointer->kind == KIND_DATA_VECTORS)
		feed_vectors(digest, address, count, pointer->kind == KIND_DATA_VECTORS);
	else if (pointer->kind == KIND_MESSAGES || pointer->kind == KIND_SENT_MESSAGES)
		feed_messages(digest, address, pointer->each, count, pointer->kind == KIND_SENT_MESSAGES);
	else if (pointer->kind == KIND_SOCKET_ADDRESS)
		feed_socket_address(digest, address, count & UINT32_MAX);
	else if (pointer->kind == KIND_FILTER)
		feed_filter(digest, address);
	else if (pointer->kind == KIND_HINT)
		feed_word(digest, hint_value(address));
	else if (pointer->kind == KIND_OPTION)
		feed_option(digest, arguments);
	else if (pointer->kind == KIND_PROGRAM)
		feed_program(digest, arguments);
	else if (pointer->kind == KIND_ROBUST || pointer->kind == KIND_ENDS)
		feed_robust(digest, address);
	else
		feed_address(digest, address);
	if (pointer->kind == KIND_DATA) {
		feed_address(digest, address);
		feed_bytes(digest, address, count, MAX_BYTES);
	}
}

bool pointed_value(const struct pointer *pointer, const uint64_t arguments[CALL_ARGUMENTS],
		   uint64_t robust, struct pointed_at *found)
{
	*found = NOTHING;
	feed_pointer(found, pointer, arguments, robust);
	return found->whole;
}

bool is_kernel_file(const struct pointer *pointer, const uint64_t arguments[CALL_ARGUMENTS])
{
	static const char *const names[] = { "proc/", "sys/", "sysfs/", "dev/kmsg/", "dev/fd/",
					     "dev/stdin/" };
	uint64_t address = arguments[pointer->argument - 1], part;
	struct pointed_at digest = NOTHING;
	char room[MAX_PATH + 2] = "", *path;

	part = in_page(address, MAX_PATH);
	fetch(&digest, address, room, part);
	if (strlen(room) == part && part < MAX_PATH)
		fetch(&digest, address + part, room + part, MAX_PATH - part);
	path = room + strspn(room, "/.");
	strcat(path, "/");
	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(path, names[i], strlen(names[i])))
			return true;
	return strstr(room, "..");
}

unsigned int vector_find(uint64_t vdso, uint64_t stack, uint64_t (*pairs)[2], unsigned int most,
			 uint64_t *address)
{
	enum { VDSO = 33 };
	const uint64_t end = stack + (1u << 18);
	struct pointed_at digest = NOTHING;
	unsigned int count = 0;

	for (*address = stack; vdso && *address < end && digest.whole; *address += 8) {
		fetch(&digest, *address, pairs, sizeof(*pairs));
		if (pairs[0][0] != VDSO || pairs[0][1] != vdso)
			continue;
		while (digest.whole && count < most && (!count || pairs[count - 1][0])) {
			fetch(&digest, *address + count * sizeof(*pairs), pairs[count], sizeof(*pairs));
			count++;
		}
		return count;
	}
	return 0;
}

bool heard_value(uint64_t address, uint64_t size, uint64_t *value)
{
	struct pointed_at digest = NOTHING;

	feed_bytes(&digest, address, size, MAX_BYTES);
	*value = digest.hash;
	return digest.whole;
}

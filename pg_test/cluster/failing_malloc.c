/*
 * Preloaded into a server by faults.rs: refuses memory.
 *
 * Of what pgss_rs.so asks for, PGSS_RS_FAILING_MALLOC_IN_TEN pieces in 10 (or 4) are refused, in processes that were forked
 * while the file named by PGSS_RS_FAILING_MALLOC was there; or, when PGSS_RS_FAILING_MALLOC_FROM is set, all pieces of at least
 * so many bytes. The server's own requests are left alone.
 *
 * The file named by PGSS_RS_FAILING_MALLOC_AFTER holds two numbers, in binary: a process, and how many pieces it still gets,
 * whoever asks for them in it.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static uintptr_t from, to;
static size_t least;
static unsigned int seed, in_ten;
static int refusing, busy;
static pid_t process;
static volatile int32_t *limited;

static void
find_library(void)
{
	char		line[1024];
	FILE	   *maps = fopen("/proc/self/maps", "r");

	from = to = 0;
	while (maps && fgets(line, sizeof(line), maps))
	{
		uintptr_t	start, end;

		if (strstr(line, "/pgss_rs.so") && sscanf(line, "%lx-%lx", &start, &end) == 2)
		{
			from = from ? from : start;
			to = end;
		}
	}
	if (maps)
		fclose(maps);
}

static void
find_limits(void)
{
	const char *name = getenv("PGSS_RS_FAILING_MALLOC_AFTER");
	int			file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
	void	   *at = MAP_FAILED;

	if (file >= 0)
	{
		at = mmap(NULL, 2 * sizeof(int32_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		close(file);
	}
	limited = at == MAP_FAILED ? NULL : at;
}

static unsigned int
number(const char *name, unsigned int otherwise)
{
	const char *value = getenv(name);

	return value ? strtoul(value, NULL, 10) : otherwise;
}

static int
refuses(void *caller, size_t size)
{
	if (busy)
		return 0;
	if (process != getpid())
	{
		const char *file = getenv("PGSS_RS_FAILING_MALLOC");

		busy = 1;
		process = getpid();
		seed = (unsigned int) process;
		least = number("PGSS_RS_FAILING_MALLOC_FROM", 0);
		in_ten = number("PGSS_RS_FAILING_MALLOC_IN_TEN", 4);
		refusing = file && access(file, F_OK) == 0;
		if (refusing)
			find_library();
		if (!limited)
			find_limits();
		busy = 0;
	}
	if (limited && limited[0] == process && limited[1]-- <= 0)
		return 1;
	if (!refusing || (uintptr_t) caller < from || (uintptr_t) caller >= to)
		return 0;
	return least ? size >= least : rand_r(&seed) % 10 < in_ten;
}

void *
malloc(size_t size)
{
	return refuses(__builtin_return_address(0), size) ? NULL : __libc_malloc(size);
}

void *
calloc(size_t count, size_t size)
{
	return refuses(__builtin_return_address(0), count * size) ? NULL : __libc_calloc(count, size);
}

void *
realloc(void *old, size_t size)
{
	return refuses(__builtin_return_address(0), size) ? NULL : __libc_realloc(old, size);
}

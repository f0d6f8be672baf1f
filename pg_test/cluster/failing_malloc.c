/*
 * Preloaded into a server by faults.rs: of the memory that pgss_rs.so asks for, 4 in 10 pieces are refused, in processes
 * that were forked while the file named by PGSS_RS_FAILING_MALLOC was there; or, when PGSS_RS_FAILING_MALLOC_FROM is set, all
 * pieces of at least so many bytes. The server's own requests are left alone.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static uintptr_t from, to;
static size_t least;
static unsigned int seed;
static int refusing, busy;
static pid_t process;

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
		least = getenv("PGSS_RS_FAILING_MALLOC_FROM") ? strtoul(getenv("PGSS_RS_FAILING_MALLOC_FROM"), NULL, 10) : 0;
		refusing = file && access(file, F_OK) == 0;
		if (refusing)
			find_library();
		busy = 0;
	}
	if (!refusing || (uintptr_t) caller < from || (uintptr_t) caller >= to)
		return 0;
	return least ? size >= least : rand_r(&seed) % 10 < 4;
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

/*
 * A known cost for each execution, for `pgss_rs_load calibrate`, which compiles this and preloads it into a throwaway server.
 *
 * The cost is a chain of steps, each of which needs the one before: it takes as many processor cycles whatever runs beside it
 * and reads no clock. Fences keep the processor from running what comes after while the last steps are still on their way; both
 * arms have them. How many steps make a ns is measured when the server starts; what the steps really take is timed again by
 * pgss_rs_busy_took().
 */
#include "postgres.h"

#include <time.h>

#include "executor/executor.h"
#include "fmgr.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

/* For each measurement of the steps: long against a reading of the clock, short against the scheduler's slices. */
#define STEPS 20000
#define TRIALS 201

static int	busy_ns = 0;
static int64 busy_steps = 0;
static double steps_per_ns = 1;
static volatile uint64 sink;
static ExecutorStart_hook_type previous_start = NULL;

static inline void
fence(void)
{
#if defined(__x86_64__)
	__asm__ volatile("lfence" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

static pg_noinline void
be_busy(int64 steps)
{
	uint64		x = sink | 1;

	fence();
	for (int64 i = 0; i < steps; i++)
	{
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	sink = x;
	fence();
}

static double
now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int
by_size(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* The median ns of a call with so many steps, by this clock, each trial timing `calls` of them. */
static double
took(clockid_t clock, int64 steps, int calls)
{
	double		trials[TRIALS];

	for (int trial = 0; trial < TRIALS; trial++)
	{
		double		start = now_ns(clock);

		for (int call = 0; call < calls; call++)
			be_busy(steps);
		trials[trial] = (now_ns(clock) - start) / calls;
	}
	qsort(trials, TRIALS, sizeof(double), by_size);
	return trials[TRIALS / 2];
}

static void
start(QueryDesc *query, int flags)
{
	be_busy(busy_steps);
	if (previous_start)
		previous_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

static void
assign_ns(int ns, void *extra)
{
	busy_steps = (int64) (ns * steps_per_ns + 0.5);
}

PG_FUNCTION_INFO_V1(pgss_rs_busy_took);
Datum		pgss_rs_busy_took(PG_FUNCTION_ARGS);
void		_PG_init(void);

Datum
pgss_rs_busy_took(PG_FUNCTION_ARGS)
{
	int			ns = PG_GETARG_INT32(0);
	clockid_t	clock = PG_GETARG_BOOL(1) ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
	int			calls = Max(1, 50000 / Max(1, ns));

	PG_RETURN_FLOAT8(took(clock, (int64) (ns * steps_per_ns + 0.5), calls) - took(clock, 0, calls));
}

void
_PG_init(void)
{
	steps_per_ns = STEPS / took(CLOCK_MONOTONIC, STEPS, 1);
	DefineCustomIntVariable("pgss_rs_busy.ns", "Cost of each execution.", NULL, &busy_ns, 0, 0, 1000000,
							PGC_USERSET, 0, NULL, assign_ns, NULL);
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
}

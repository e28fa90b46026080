/* The heaviest alignment that keeps both orders, where every group holds one call.
 *
 * Knows rows, columns and the weights between them. It takes the steps that the Python module takes, so it finds the same
 * pairs; only what a step changes is kept, and not every state.
 */

/* The rows that a column may go to, in order, and what each pair weighs, nothing if it is 0. */
typedef struct {
    const int *rows, *which; /* `which`: by row that of the weights that is its own */
    const double *weights;
    int count;
} Column;

#define CLOSE 1e-12

typedef struct {
    int row, stop; /* the row is paired in the best of its first `row + 1` to `stop - 1` rows */
} Change;

typedef struct {
    Change *changes;
    Py_ssize_t *first; /* by column */
    Py_ssize_t filled, room;
    double *best, *after; /* by number of rows from the first */
} Walk;

static int note_change(Walk *walk, int row, int stop)
{
    Change *list = roomier(walk->changes, walk->filled, &walk->room, sizeof(Change));
    if (list == NULL)
        return -1;
    walk->changes = list;
    walk->changes[walk->filled++] = (Change){row, stop};
    return 0;
}

/* The place of the first of the rows that is not before `row`. */
static int first_from(const Column *column, int row)
{
    int low = 0, high = column->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (column->rows[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many rows a column and those before it may have gone to. */
static int top_of(int column, int ahead, int rows)
{
    return column + ahead + 1 < rows ? column + ahead + 1 : rows;
}

/* One column: it goes to one row from `first` to `last`, or to none. */
static int give_column(Walk *walk, const Column *column, int end, int first, int last)
{
    double *best = walk->best, *after = walk->after;
    int from = end, to = 0;
    for (int each = first_from(column, first); each < column->count && column->rows[each] <= last; each++) {
        int row = column->rows[each], at = row + 1;
        double reached = best[row] + column->weights[column->which[each]];
        if (!(reached > after[at] + CLOSE))
            continue;
        if (at < from)
            from = at;
        do
            after[at++] = reached;
        while (at < end && reached > after[at] + CLOSE);
        if (at > to)
            to = at;
        if (note_change(walk, row, at) < 0)
            return -1;
    }
    if (from < to)
        memcpy(best + from, after + from, (size_t)(to - from) * sizeof(double));
    return 0;
}

/* The row of each column, or -1. Beyond `top` rows nothing changed at a column but what changed there too. */
static void trace_back(const Walk *walk, int rows, int columns, int ahead, int *row_of)
{
    int end = rows;
    for (int column = columns - 1; column >= 0; column--) {
        int top = top_of(column, ahead, rows), reached = end < top ? end : top;
        row_of[column] = -1;
        for (Py_ssize_t at = walk->first[column + 1] - 1; at >= walk->first[column] && row_of[column] < 0; at--)
            if (walk->changes[at].row < reached && reached < walk->changes[at].stop)
                row_of[column] = walk->changes[at].row;
        if (row_of[column] >= 0)
            end = row_of[column];
    }
}

/* The row that each column is paired with, or -1; `kind_of` tells which of `kinds` each is (-1: none). -1 on failure.
 *
 * `sure` is a weight that some alignment certainly reaches, a whole number. A pair weighs 1 at most, so one so far aside
 * that too little is left before and behind it is in no alignment that comes near: it is not looked at. */
static int align_in_order(const Column *kinds, const int *kind_of, int rows, int columns, int sure, int *row_of)
{
    Walk walk = {.best = calloc((size_t)(2 * rows + 2), sizeof(double))};
    walk.first = calloc((size_t)columns + 1, sizeof(Py_ssize_t));
    int failed = walk.best == NULL || walk.first == NULL, ahead = rows - sure, behind = columns - sure, top = 0;
    walk.after = failed ? NULL : walk.best + rows + 1;
    for (int column = 0; !failed && column < columns; column++) {
        for (; top < top_of(column, ahead, rows); top++)
            walk.best[top + 1] = walk.after[top + 1] = walk.best[top];
        if (kind_of[column] >= 0)
            failed = give_column(&walk, kinds + kind_of[column], top + 1, column - behind, column + ahead) < 0;
        walk.first[column + 1] = walk.filled;
    }
    if (!failed)
        trace_back(&walk, rows, columns, ahead, row_of);
    free(walk.best);
    free(walk.first);
    free(walk.changes);
    return failed ? -1 : 0;
}

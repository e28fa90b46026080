/* The heaviest alignment that keeps both orders, where every group holds one call.
 *
 * Knows rows, columns and the weights between them. It takes the steps that the Python module takes, so it finds the same
 * pairs; only what a step changes is kept, and not every state.
 */

typedef struct {
    int at; /* row or column */
    double weight;
} Edge;

typedef struct {
    Edge *edges;
    Py_ssize_t *first; /* by list where its edges begin, and where the last one's end */
    Py_ssize_t filled, room;
} Edges;

static int add_edge(Edges *edges, int at, double weight)
{
    Edge *list = roomier(edges->edges, edges->filled, &edges->room, sizeof(Edge));
    if (list == NULL)
        return -1;
    edges->edges = list;
    edges->edges[edges->filled++] = (Edge){at, weight};
    return 0;
}

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

/* One column: it goes to one row or to none. */
static int give_column(Walk *walk, const Edge *edge, const Edge *last, int end)
{
    double *best = walk->best, *after = walk->after;
    int from = end, to = 0;
    for (; edge < last; edge++) {
        double reached = best[edge->at] + edge->weight;
        int at = edge->at + 1;
        if (!(reached > after[at] + CLOSE))
            continue;
        if (at < from)
            from = at;
        do
            after[at++] = reached;
        while (at < end && reached > after[at] + CLOSE);
        if (at > to)
            to = at;
        if (note_change(walk, edge->at, at) < 0)
            return -1;
    }
    if (from < to)
        memcpy(best + from, after + from, (size_t)(to - from) * sizeof(double));
    return 0;
}

/* The row of each column, or -1. */
static void trace_back(const Walk *walk, int rows, int columns, int *row_of)
{
    int end = rows;
    for (int column = columns - 1; column >= 0; column--) {
        row_of[column] = -1;
        for (Py_ssize_t at = walk->first[column + 1] - 1; at >= walk->first[column] && row_of[column] < 0; at--)
            if (walk->changes[at].row < end && end < walk->changes[at].stop)
                row_of[column] = walk->changes[at].row;
        if (row_of[column] >= 0)
            end = row_of[column];
    }
}

/* The row that each column is paired with, or -1; `list_of` tells which edges are a column's (-1: none). -1 on failure. */
static int align_in_order(const Edges *edges, const int *list_of, int rows, int columns, int *row_of)
{
    Walk walk = {.best = calloc((size_t)(2 * rows + 2), sizeof(double))};
    walk.first = calloc((size_t)columns + 1, sizeof(Py_ssize_t));
    int failed = walk.best == NULL || walk.first == NULL;
    walk.after = failed ? NULL : walk.best + rows + 1;
    for (int column = 0; !failed && column < columns; column++) {
        int list = list_of[column];
        if (list >= 0)
            failed = give_column(&walk, edges->edges + edges->first[list], edges->edges + edges->first[list + 1], rows + 1) < 0;
        walk.first[column + 1] = walk.filled;
    }
    if (!failed)
        trace_back(&walk, rows, columns, row_of);
    free(walk.best);
    free(walk.first);
    free(walk.changes);
    return failed ? -1 : 0;
}

-- plan: one row per snapshot row, always, with its one action; reads snapshot, removals, waits, promotions, prunes, clusters, pairs, rewrites.
with

-- a memory changes its tier only with its whole cluster: if a member waits, it waits where it is, and the others fold there
stuck as (
    select m.memory_id
    from promotions as m
    where
        m.action in ('promote', 'merge')
        and (
            exists (from waits as w where w.memory_id = m.memory_id)
            or exists (
                from clusters as c
                join waits as w on w.memory_id = c.memory_id
                where c.survivor_id = m.memory_id
            )
        )
),

going as (
    select
        r.memory_id,
        r.action,
        case when k.memory_id is not null then k.memory_id else r.into_id end as into_id,
        r.superseded_by,
        case when k.memory_id is not null then c.match else r.reason end as reason,
        r.detail,
        case when k.memory_id is not null then c.match <> 'copy' else r.is_lost end as is_lost,
        r.is_lost_strict
    from removals as r
    left join clusters as c on c.memory_id = r.memory_id
    left join stuck as k on k.memory_id = c.survivor_id and r.action = 'merge'
    where
        not exists (from waits as w where w.memory_id = r.memory_id)
        and not (r.action = 'merge' and exists (from stuck as k where k.memory_id = r.memory_id))
),

-- twins that a wall, a person or a fact keeps apart: the one that would have gone, and the one it would have gone into
twins as (
    select
        case when x.winner = 'right' then x.left_id else x.right_id end as memory_id,
        case when x.winner = 'right' then x.right_id else x.left_id end as twin_id,
        x.held
    from pairs as x
    where x.held is not null and x.verdict in ('same', 'contains')
),

held as (
    select t.memory_id, min(t.twin_id) as twin_id, arg_min(t.held, t.twin_id) as held
    from twins as t
    where not exists (from going as g where g.memory_id = t.twin_id and g.action = 'prune')
    group by t.memory_id
),

-- the memories that take others in under a new text: their own text counts as lost
rewritten as (
    select w.memory_id, w.content
    from rewrites as w
    where exists (from going as g where g.into_id = w.memory_id and g.reason = 'rewritten')
),

-- why a row stays that might have gone or moved, the weightiest reason first
notes as (
    select n.memory_id, arg_min(n.reason, n.weight) as reason, arg_min(n.detail, n.weight) as detail
    from (
        select w.memory_id, 'waits' as reason, w.detail, 1 as weight from waits as w
        union all
        select k.memory_id, 'waits', 'changes its tier only with its whole cluster, and a member waits', 2
        from stuck as k
        union all
        select u.memory_id, u.reason, u.detail, 3 from prunes as u where u.action = 'keep'
        union all
        select m.memory_id, m.reason, m.detail, 4 from promotions as m where m.action = 'keep'
    ) as n
    group by n.memory_id
)

select
    s.memory_id,
    s.scope,
    case
        when g.memory_id is not null then g.action
        when m.memory_id is not null and n.memory_id is null then 'promote'
        else 'keep'
    end as action,
    g.into_id,
    g.superseded_by,
    case
        when g.memory_id is not null then g.reason
        when r.memory_id is not null then 'rewritten'
        when n.memory_id is not null then n.reason
        when m.memory_id is not null then 'promoted'
        when h.memory_id is not null then 'held'
        else 'kept'
    end as reason,
    case
        when g.memory_id is not null then g.detail
        when r.memory_id is not null then 'a model put it into one text with others'
        when n.memory_id is not null then n.detail
        when m.memory_id is not null then m.detail
        when h.memory_id is not null then 'twin ' || h.twin_id || ' stays apart: ' || h.held
        else ''
    end as detail,
    coalesce(g.is_lost, r.memory_id is not null) as is_lost,
    coalesce(g.is_lost_strict, r.memory_id is not null) as is_lost_strict,
    r.content as new_content
from snapshot as s
left join going as g on g.memory_id = s.memory_id
left join notes as n on n.memory_id = s.memory_id
left join promotions as m on m.memory_id = s.memory_id and m.action = 'promote'
left join held as h on h.memory_id = s.memory_id
left join rewritten as r on r.memory_id = s.memory_id
order by s.memory_id

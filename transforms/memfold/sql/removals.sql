-- removals: one row per memory that the policy would remove, before any loss limit; reads prunes, evictions, promotions, clusters, snapshot.
-- A row is lost unless it is an exact copy or expired. Rows of one unit_id go together or not at all.
with

merges as (
    -- a member follows its survivor into the next tier, and is a copy there only if both steps are copies
    select
        c.memory_id,
        coalesce(m.into_id, c.survivor_id) as into_id,
        case when c.match = 'copy' and m.into_id is not null then m.reason else c.match end as reason,
        case when c.match = 'copy' and m.into_id is not null then m.jaccard else c.jaccard end as jaccard,
        case when c.match = 'copy' and m.into_id is not null then m.added_words else c.added_words end as added_words,
        c.detail
    from clusters as c
    left join promotions as m on m.memory_id = c.survivor_id and m.action = 'merge'
    where c.memory_id <> c.survivor_id
    union all
    select m.memory_id, m.into_id, m.reason, m.jaccard, m.added_words, m.detail
    from promotions as m
    where m.action = 'merge'
),

leaving as (
    select
        u.memory_id,
        u.unit_id,
        'prune' as action,
        null as into_id,
        u.superseded_by,
        u.reason,
        u.detail,
        0.0::double as jaccard,
        0::bigint as added_words,
        0.0::double as fit_order
    from prunes as u
    where u.action = 'prune' and not exists (from evictions as e where e.memory_id = u.memory_id)
    union all
    select e.memory_id, e.unit_id, 'prune', null, null, 'capacity', e.detail, 0.0, 0, e.fit_order
    from evictions as e
    union all
    -- what goes into one text goes together or not at all
    select
        m.memory_id,
        case when m.reason = 'rewritten' then m.into_id else m.memory_id end,
        'merge',
        m.into_id,
        null,
        m.reason,
        m.detail,
        m.jaccard,
        m.added_words,
        0.0
    from merges as m
    where
        not exists (from prunes as u where u.memory_id = m.memory_id)
        and not exists (from evictions as e where e.memory_id = m.memory_id)
)

select
    l.memory_id,
    s.scope,
    l.unit_id,
    l.action,
    l.into_id,
    l.superseded_by,
    l.reason,
    l.detail,
    l.reason not in ('copy', 'expired') as is_lost,
    true as is_lost_strict,
    -- the order in which a limited pass takes them: within a step, the surest first
    case l.reason
        when 'copy' then 0
        when 'expired' then 0
        when 'blank' then 1
        when 'by hand' then 1
        when 'same' then 2
        when 'contains' then 3
        when 'rewritten' then 3
        when 'stale' then 4
        when 'superseded' then 5
        when 'capacity' then 6
    end::bigint as fit_step,
    case l.reason
        when 'same' then -l.jaccard
        when 'contains' then l.added_words
        when 'rewritten' then 1000000  -- after everything that keeps its text
        else l.fit_order
    end::double as fit_order
from leaving as l
join snapshot as s on s.memory_id = l.memory_id
order by l.memory_id

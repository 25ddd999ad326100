-- waits: one row per removal that does not fit under the loss limits of its scope; reads removals, snapshot, losses, policy.
-- Empty unless policy.on_excess is 'fit'. The limits are compared as the gate compares them.
with

scopes as (
    select s.scope, count(*) as entries_before
    from snapshot as s
    group by s.scope
),

units as (
    select
        r.scope,
        r.unit_id,
        min(r.fit_step) as fit_step,
        min(r.fit_order) as fit_order,
        -- a text that is rewritten loses that of its survivor as well
        count(*) filter (where case when p.strict_entries then r.is_lost_strict else r.is_lost end)
        + max(case when r.reason = 'rewritten' then 1 else 0 end) as lost
    from removals as r
    cross join policy as p
    group by r.scope, r.unit_id
),

queue as (
    select
        u.scope,
        u.unit_id,
        sum(u.lost) over (
            partition by u.scope
            order by u.fit_step, u.fit_order, u.unit_id
            rows between unbounded preceding and current row
        )::bigint as lost_so_far
    from units as u
),

beyond as (
    select q.unit_id, q.lost_so_far, c.entries_before
    from queue as q
    join scopes as c on c.scope = q.scope
    left join losses as l on l.scope = q.scope
    cross join policy as p
    where
        p.on_excess = 'fit'
        and q.lost_so_far > 0
        and (
            q.lost_so_far::double / c.entries_before::double > p.max_loss_fraction
            or q.lost_so_far > p.max_lost_rows
            or (q.lost_so_far + coalesce(l.lost, 0))::double / (c.entries_before + coalesce(l.lost, 0))::double
            > p.max_rolling_loss_fraction
        )
)

select
    r.memory_id,
    r.scope,
    r.reason || ', but waits: with it ' || b.lost_so_far || ' of ' || b.entries_before || ' memories would be lost'
        as detail
from removals as r
join beyond as b on b.unit_id = r.unit_id
order by r.memory_id

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.TreeSet;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.retry.RetryOneTime;

/**
 * The steps of client/examples/recipe.rs with Apache Curator: RecipesCurator SERVERS RECIPE PATH [COUNT]. An election also has the
 * step "leader", the name of the leader that Curator sees.
 */
public class RecipesCurator {
    private static final int TIMEOUT_MS = 20_000;

    private final CuratorFramework client;
    private final String recipe;
    private final String path;
    private final int count;
    private final InterProcessMutex mutex;
    private final DistributedBarrier barrier;
    private final DistributedDoubleBarrier doubleBarrier;
    private Lease lease;
    private LeaderLatch latch;
    private GroupMember member;

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], TIMEOUT_MS, TIMEOUT_MS, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        int count = arguments.length > 3 ? Integer.parseInt(arguments[3]) : 1;
        RecipesCurator steps = new RecipesCurator(client, arguments[1], arguments[2], count);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int space = line.indexOf(' ');
            String step = space < 0 ? line : line.substring(0, space);
            System.out.println(steps.step(step, line.substring(space + 1)));
        }
        client.close();
        System.exit(0);
    }

    private RecipesCurator(CuratorFramework client, String recipe, String path, int count) {
        this.client = client;
        this.recipe = recipe;
        this.path = path;
        this.count = count;
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        mutex = recipe.equals("read") ? both.readLock() : recipe.equals("write") ? both.writeLock() : new InterProcessMutex(client, path);
        barrier = new DistributedBarrier(client, path);
        doubleBarrier = new DistributedDoubleBarrier(client, path, count);
    }

    private String step(String step, String argument) throws Exception {
        switch (recipe + " " + step) {
            case "lock acquire":
            case "read acquire":
            case "write acquire":
                mutex.acquire();
                return "holds";
            case "lock release":
            case "read release":
            case "write release":
                mutex.release();
                return "released";
            case "semaphore acquire":
                lease = new InterProcessSemaphoreV2(client, path, count).acquire();
                return "holds";
            case "semaphore release":
                lease.close();
                return "released";
            case "election acquire":
                latch = new LeaderLatch(client, path, "curator");
                latch.start();
                latch.await();
                return "holds";
            case "election release":
                latch.close();
                return "released";
            case "election leader":
                // A latch that does not take part sees who leads.
                Participant leader = new LeaderLatch(client, path).getLeader();
                return "leader " + leader.getId();
            case "barrier set":
                barrier.setBarrier();
                return "set";
            case "barrier wait":
                barrier.waitOnBarrier();
                return "passed";
            case "barrier remove":
                barrier.removeBarrier();
                return "removed";
            case "double enter":
                doubleBarrier.enter();
                return "entered";
            case "double leave":
                doubleBarrier.leave();
                return "left";
            case "counter add":
            case "counter get":
                DistributedAtomicLong counter = new DistributedAtomicLong(client, path, new RetryOneTime(1));
                if (step.equals("get")) {
                    return "is " + counter.get().postValue();
                }
                while (true) {
                    AtomicValue<Long> added = counter.add(Long.parseLong(argument));
                    // Otherwise others were faster twice.
                    if (added.succeeded()) {
                        return "is " + added.postValue();
                    }
                }
            case "group join":
                member = new GroupMember(client, path, argument, new byte[0]);
                member.start();
                return "joined " + argument;
            case "group leave":
                member.close();
                return "left";
            case "group members":
                Collection<String> names = new TreeSet<>(member.getCurrentMembers().keySet());
                return "members " + String.join(" ", names);
            default:
                throw new IllegalArgumentException(recipe + " has no step " + step);
        }
    }
}

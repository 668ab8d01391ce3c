import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS of one node and YARN with two NodeManagers, in one JVM, until it is killed.
 *
 * MiniYarn FOLDER CONF: data goes into FOLDER, clients' settings into CONF. The file CONF/ready is made last.
 */
class MiniYarn {
    /** The settings that clients need of YARN's. */
    private static final Pattern CLIENTS = Pattern.compile(
            "yarn\\.resourcemanager\\..*address|yarn\\.resourcemanager\\.am\\.max-attempts|yarn\\.application\\.classpath");

    private static final Map<String, String> SETTINGS = Map.of(
            "dfs.permissions.enabled", "false",
            "yarn.application.classpath", "",
            "yarn.resourcemanager.am.max-attempts", "3",
            "yarn.scheduler.minimum-allocation-mb", "128",
            "yarn.scheduler.capacity.maximum-am-resource-percent", "0.9",
            "yarn.nodemanager.resource.memory-mb", "4096",
            "yarn.nodemanager.vmem-check-enabled", "false",
            "yarn.nodemanager.pmem-check-enabled", "false",
            // A disk that is nearly full is none otherwise.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.5");

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        Path conf = Path.of(arguments[1]);
        Files.createDirectories(conf);
        // Where the classes of Hadoop's tests put files.
        System.setProperty("test.build.data", folder.toString());
        Configuration settings = new Configuration();
        SETTINGS.forEach(settings::set);
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, folder.resolve("hdfs").toString());
        MiniDFSCluster hdfs = new MiniDFSCluster.Builder(settings).numDataNodes(1).build();
        hdfs.waitActive();
        String files = hdfs.getFileSystem().getUri().toString();
        settings.set("fs.defaultFS", files);
        MiniYARNCluster yarn = new MiniYARNCluster("yarn", 2, 1, 1);
        yarn.init(settings);
        yarn.start();
        if (!yarn.waitForNodeManagersToConnect(60_000)) {
            throw new IllegalStateException("the NodeManagers did not connect");
        }
        Configuration core = new Configuration(false);
        core.set("fs.defaultFS", files);
        write(core, conf.resolve("core-site.xml"));
        Configuration site = new Configuration(false);
        for (Map.Entry<String, String> setting : yarn.getConfig()) {
            if (CLIENTS.matcher(setting.getKey()).matches()) {
                site.set(setting.getKey(), yarn.getConfig().get(setting.getKey()));
            }
        }
        write(site, conf.resolve("yarn-site.xml"));
        Files.createFile(conf.resolve("ready"));
        Thread.currentThread().join();
    }

    private static void write(Configuration settings, Path file) throws Exception {
        try (var out = Files.newOutputStream(file)) {
            settings.writeXml(out);
        }
    }
}
